"""Settings: where they come from, and that a mistyped one is told."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.common import Configuration
from penstock.common.options import ALIASES, OPTIONS, BadSetting, options_page, parse_lines, store_options
from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Size, Whole
from penstock.datastream import StreamExecutionEnvironment

PACKAGE = Path(penstock.__file__).parent


def environment(**settings: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration.from_dict({k.replace("__", "."): v for k, v in settings.items()}))


class TestAnUnknownKey:
    def test_is_refused_with_the_nearest_known_one(self) -> None:
        with pytest.raises(BadSetting, match=r"'state.checkpoints.dri'. Did you mean 'state.checkpoints.dir'"):
            environment(state__checkpoints__dri="/x")

    def test_that_is_like_nothing_leads_to_the_page(self) -> None:
        with pytest.raises(BadSetting, match=r"docs/reference/settings\.md"):
            environment(zzz="1")

    def test_is_refused_however_it_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        env = environment()
        with pytest.raises(BadSetting):
            env.configure(Configuration.from_dict({"paralelism.default": 2}))
        env.get_configuration().set_string("paralelism.default", "2")
        env.from_collection([1]).print()
        with pytest.raises(BadSetting, match=r"parallelism\.default"):
            env.execute()
        monkeypatch.setenv("PENSTOCK_PROPERTIES", "paralelism.default: 2")
        with pytest.raises(BadSetting):
            environment()

    def test_of_spark_is_spark_s_affair(self) -> None:
        assert environment(spark__whatever="1").get_configuration().get_string("spark.whatever", "") == "1"


class TestStrength:
    def test_file_then_environment_then_program_then_command_line_then_calls(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launched: Callable[[dict[str, str]], None]
    ) -> None:
        def parallelism(**settings: Any) -> int:
            return environment(**settings).get_parallelism()

        path = tmp_path / "penstock.conf"
        path.write_text("# mine\nparallelism.default: 2  # two\n\nstate.backend: 'memory'\n")
        monkeypatch.setenv("PENSTOCK_CONF", str(path))
        assert parallelism() == 2
        assert environment().get_configuration().get_string("state.backend", "") == "memory"
        monkeypatch.setenv("PENSTOCK_PROPERTIES", "parallelism.default: 3")
        assert parallelism() == 3
        assert parallelism(parallelism__default=4) == 4
        launched({"parallelism.default": "5"})
        assert parallelism(parallelism__default=4) == 5
        assert environment().set_parallelism(6).get_parallelism() == 6

    def test_an_alias_is_the_setting(self) -> None:
        config = environment(state__checkpoint__dir="/x").get_configuration()
        assert config.get_string("state.checkpoints.dir", "") == "/x"

    def test_a_file_that_is_not_there_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_CONF", "/nowhere/penstock.conf")
        with pytest.raises(BadSetting, match=r"'/nowhere/penstock\.conf'.*No such file"):
            environment()


def test_a_line_that_is_no_setting_is_named() -> None:
    with pytest.raises(BadSetting, match=r"conf, line 2: 'nonsense' is no setting"):
        parse_lines("a.b: c\nnonsense", "conf")


def test_values_may_hold_colons() -> None:
    assert parse_lines("state.checkpoints.dir: file:///a/b", "x") == {"state.checkpoints.dir": "file:///a/b"}


class TestOptionsOfTheCheckpointStore:
    def test_go_to_it_as_text_truths_and_objects(self) -> None:
        settings = {
            "state.checkpoints.dir": "s3://bucket/x",
            "state.checkpoints.fs.key": "123",
            "state.checkpoints.fs.anon": "true",
            "state.checkpoints.fs.client_kwargs": '{"region_name": "eu-central-1"}',
        }
        environment(**{key.replace(".", "__"): value for key, value in settings.items()})
        options = {"key": "123", "anon": True, "client_kwargs": {"region_name": "eu-central-1"}}
        assert store_options(settings) == options

    def test_that_are_no_json_are_refused_without_showing_them(self) -> None:
        with pytest.raises(BadSetting, match=r"state\.checkpoints\.fs\.x begins with \{") as error:
            store_options({"state.checkpoints.fs.x": "{hidden"})
        assert "hidden" not in str(error.value)

    def test_are_hidden_where_a_configuration_is_shown(self) -> None:
        config = Configuration.from_dict({"state.checkpoints.fs.key": "hidden", "state.backend": "memory"})
        assert "hidden" not in f"{config} {config!r}"
        assert "memory" in str(config)


class TestAnOption:
    def test_has_its_default_where_it_is_not_set(self) -> None:
        size = option("my.size", Size(), "64 kb", "a size")
        assert Configuration().get(size) == size.default == 65_536
        assert size.default_text == "64 kb"

    def test_can_have_no_default(self) -> None:
        most = optional("my.most", Whole(), "no limit", "the most")
        assert Configuration().get(most) is None
        assert Configuration.from_dict({"my.most": 0}).get(most) == 0
        assert most.default_text == "no limit"

    def test_cannot_have_a_default_that_a_user_could_not_set(self) -> None:
        with pytest.raises(BadSetting, match=r"my\.most is 'many'"):
            option("my.most", Whole(), "many", "the most")

    def test_has_a_key_and_aliases_that_no_other_option_has(self) -> None:
        spellings = [spelling for known in OPTIONS.values() for spelling in (known.key, *known.aliases)]
        assert len(spellings) == len(set(spellings))

    def test_is_spelled_nowhere_but_in_its_definition(self) -> None:
        """A module that needs a setting imports the option, which has the key and the default."""
        spelled = [
            f"{path.name}:{node.lineno}: {node.value}"
            for path in sorted(PACKAGE.rglob("*.py"))
            if PACKAGE / "common" / "options" not in path.parents
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and (node.value in OPTIONS or node.value in ALIASES)
        ]
        assert spelled == []


def test_the_page_of_settings_is_up_to_date() -> None:
    assert Path(__file__).parents[2].joinpath("docs/reference/settings.md").read_text() == options_page()
