"""Settings: their sources and precedence, and the rejection of mistyped ones."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.common import Configuration
from penstock.common.options import (
    ALIASES,
    OPTIONS,
    BadSetting,
    checkpoints,
    configuration_file,
    options_page,
    parse_lines,
    program,
    restarts,
    running,
    service,
    state,
    store_options,
    surrounding_settings,
)
from penstock.common.options.definition import Option, option, optional
from penstock.common.setting_types import Size, Whole
from penstock.datastream import StreamExecutionEnvironment

PACKAGE = Path(penstock.__file__).parent


def environment(**settings: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration.from_dict({k.replace("__", "."): v for k, v in settings.items()}))


class TestAnUnknownKey:
    def test_an_unknown_key_is_rejected_with_the_closest_known_one(self) -> None:
        with pytest.raises(BadSetting, match=r"'state.checkpoints.dri'. Did you mean 'state.checkpoints.dir'"):
            environment(state__checkpoints__dri="/x")

    def test_a_key_without_a_close_match_refers_to_the_documentation(self) -> None:
        with pytest.raises(BadSetting, match=r"docs/reference/settings\.md"):
            environment(zzz="1")

    def test_an_unknown_key_is_rejected_from_every_source(self, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_a_spark_key_is_not_validated(self) -> None:
        assert environment(spark__whatever="1").get_configuration().get_string("spark.whatever", "") == "1"


class TestStrength:
    def test_settings_override_each_other_in_order_of_precedence(
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

    def test_an_alias_sets_the_canonical_key(self) -> None:
        config = environment(state__checkpoint__dir="/x").get_configuration()
        assert config.get_string("state.checkpoints.dir", "") == "/x"

    def test_a_missing_configuration_file_is_named_in_the_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_CONF", "/nowhere/penstock.conf")
        with pytest.raises(BadSetting, match=r"'/nowhere/penstock\.conf'.*No such file"):
            environment()


class TestTheConfigurationFile:
    @pytest.fixture
    def places(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
        """The file of the user and the file of the host. Neither exists."""
        monkeypatch.delenv("PENSTOCK_CONF")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setattr("penstock.common.options.surrounding.SYSTEM_FILE", tmp_path / "etc" / "penstock.conf")
        user, system = tmp_path / "config" / "penstock" / "penstock.conf", tmp_path / "etc" / "penstock.conf"
        for path in (user, system):
            path.parent.mkdir(parents=True)
        return user, system

    def test_no_settings_are_read_if_no_file_exists(self, places: tuple[Path, Path]) -> None:
        assert configuration_file() is None
        assert surrounding_settings() == {}

    def test_the_file_of_the_user_wins_over_the_file_of_the_host(self, places: tuple[Path, Path]) -> None:
        user, system = places
        system.write_text("parallelism.default: 3")
        assert surrounding_settings() == {"parallelism.default": "3"}
        user.write_text("state.backend: memory")
        assert configuration_file() == user
        assert surrounding_settings() == {"state.backend": "memory"}

    def test_the_default_place_is_below_the_home_directory(
        self, places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        path = tmp_path / ".config" / "penstock" / "penstock.conf"
        path.parent.mkdir(parents=True)
        path.write_text("parallelism.default: 3")
        assert configuration_file() == path

    def test_the_variable_wins_over_all_places(
        self, places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places[0].write_text("parallelism.default: 3")
        named = tmp_path / "mine.conf"
        named.write_text("parallelism.default: 4")
        monkeypatch.setenv("PENSTOCK_CONF", str(named))
        assert surrounding_settings() == {"parallelism.default": "4"}
        monkeypatch.setenv("PENSTOCK_CONF", "")
        assert configuration_file() is None
        assert surrounding_settings() == {}

    def test_a_file_that_cannot_be_read_is_an_error_and_not_skipped(self, places: tuple[Path, Path]) -> None:
        user, system = places
        system.write_text("parallelism.default: 3")
        user.symlink_to("/nowhere/penstock.conf")
        with pytest.raises(BadSetting, match=r"Cannot read '.*config/penstock/penstock\.conf': No such file"):
            surrounding_settings()
        user.unlink()
        user.write_bytes(b"\xff")
        with pytest.raises(BadSetting, match="not a text file in UTF-8"):
            surrounding_settings()


def test_an_invalid_line_is_named_in_the_error() -> None:
    with pytest.raises(BadSetting, match=r"conf, line 2: 'nonsense' is not a setting"):
        parse_lines("a.b: c\nnonsense", "conf")


def test_values_can_contain_colons() -> None:
    assert parse_lines("state.checkpoints.dir: file:///a/b", "x") == {"state.checkpoints.dir": "file:///a/b"}


class TestOptionsOfTheCheckpointStore:
    def test_store_options_are_parsed_as_text_booleans_and_objects(self) -> None:
        settings = {
            "state.checkpoints.dir": "s3://bucket/x",
            "state.checkpoints.fs.key": "123",
            "state.checkpoints.fs.anon": "true",
            "state.checkpoints.fs.client_kwargs": '{"region_name": "eu-central-1"}',
        }
        environment(**{key.replace(".", "__"): value for key, value in settings.items()})
        options = {"key": "123", "anon": True, "client_kwargs": {"region_name": "eu-central-1"}}
        assert store_options(settings) == options

    def test_invalid_json_in_a_store_option_is_rejected_without_showing_it(self) -> None:
        with pytest.raises(BadSetting, match=r"state\.checkpoints\.fs\.x starts with \{") as error:
            store_options({"state.checkpoints.fs.x": "{hidden"})
        assert "hidden" not in str(error.value)

    def test_store_options_are_masked_when_a_configuration_is_printed(self) -> None:
        config = Configuration.from_dict({"state.checkpoints.fs.key": "hidden", "state.backend": "memory"})
        assert "hidden" not in f"{config} {config!r}"
        assert "memory" in str(config)


class TestAnOption:
    def test_an_unset_option_has_its_default(self) -> None:
        size = option("my.size", Size(), "64 kb", "a size")
        assert Configuration().get(size) == size.default == 65_536
        assert size.default_text == "64 kb"

    def test_an_optional_option_defaults_to_none(self) -> None:
        most = optional("my.most", Whole(), "no limit", "the most")
        assert Configuration().get(most) is None
        assert Configuration.from_dict({"my.most": 0}).get(most) == 0
        assert most.default_text == "no limit"

    def test_an_option_rejects_an_invalid_default(self) -> None:
        with pytest.raises(BadSetting, match=r"my\.most is 'many'"):
            option("my.most", Whole(), "many", "the most")

    def test_keys_and_aliases_of_options_are_unique(self) -> None:
        spellings = [spelling for known in OPTIONS.values() for spelling in (known.key, *known.aliases)]
        assert len(spellings) == len(set(spellings))

    def test_option_keys_are_spelled_only_in_their_definitions(self) -> None:
        """Modules import the option, which has the key and the default, instead of repeating the key."""
        spelled = [
            f"{path.name}:{node.lineno}: {node.value}"
            for path in sorted(PACKAGE.rglob("*.py"))
            if PACKAGE / "common" / "options" not in path.parents
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and (node.value in OPTIONS or node.value in ALIASES)
        ]
        assert spelled == []

    def test_every_option_is_read_by_a_module(self) -> None:
        """A setting without a reader is accepted and documented, and changes nothing."""
        no_reader = {
            "state.checkpoints.fs.*",  # stands for a prefix in docs/reference/settings.md
            "state.backend.rocksdb.timer-service.factory",  # both values mean the same
        }
        names = {
            name: option.key
            for subject in (program, checkpoints, restarts, state, running, service)
            for name, option in vars(subject).items()
            if isinstance(option, Option)
        }
        read = {
            node.id if isinstance(node, ast.Name) else node.attr
            for path in PACKAGE.rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        assert names.keys() - read == {name for name, key in names.items() if key in no_reader}


def test_the_configuration_page_is_up_to_date() -> None:
    assert Path(__file__).parents[2].joinpath("docs/reference/settings.md").read_text() == options_page()
