"""Every setting of Flink is effective, accepted without effect, or refused, and the reference names it."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.common import Configuration
from penstock.common.options import ALIASES, OPTIONS, BadSetting, is_effective, is_known, near_miss, without_effect
from penstock.common.options.flink.ruling import refused
from penstock.common.options.flink.ruling import without_effect as accepted
from penstock.common.options.flink.rulings import RULINGS, ruling_of
from penstock.datastream import StreamExecutionEnvironment

ROOT = Path(__file__).parents[2]


class Setting(NamedTuple):
    """A line of the recorded settings."""

    key: str
    type: str
    default: str
    releases: str
    replaced_by: str


def recorded() -> Iterator[Setting]:
    """Flink's settings, as scripts/flink_settings.py reads them off the classes of two releases."""
    for line in (ROOT / "tests" / "data" / "flink_settings.tsv").read_text().splitlines()[1:]:
        yield Setting(*line.split("\t"))


SETTINGS = list(recorded())


class TestTheRecordedSettings:
    def test_both_releases_are_recorded(self) -> None:
        assert len([setting for setting in SETTINGS if "2.3" in setting.releases.split()]) > 1000
        assert len([setting for setting in SETTINGS if "1.20" in setting.releases.split()]) > 1000

    def test_the_reference_names_every_one_of_them(self) -> None:
        page = (ROOT / "docs" / "reference" / "settings.md").read_text()
        assert [setting.key for setting in SETTINGS if f"`{setting.key}`" not in page] == []

    def test_every_one_has_an_outcome(self) -> None:
        assert [setting.key for setting in SETTINGS if not is_known(setting.key)] == []

    def test_the_default_of_flink_is_never_refused_unless_it_is_none(self) -> None:
        """A configuration that spells out Flink's defaults changes nothing."""
        wrong = [
            setting.key
            for setting in SETTINGS
            if not is_effective(setting.key)
            and setting.default not in ("null", "[]", "{}")
            and (ruling := ruling_of(setting.key)) is not None
            and ruling.refuses(setting.default)
        ]
        assert wrong == []

    def test_every_ruling_names_keys_that_have_no_effect(self) -> None:
        assert [ruling.why for ruling in RULINGS if all(is_effective(key) for key in ruling.keys)] == []

    def test_no_key_has_two_rulings(self) -> None:
        keys = [key for ruling in RULINGS for key in ruling.keys]
        assert sorted({key for key in keys if keys.count(key) > 1}) == []

    def test_a_spelling_of_an_effective_setting_is_effective_too(self) -> None:
        wrong = [
            setting.key
            for setting in SETTINGS
            if setting.replaced_by in OPTIONS.keys() | ALIASES.keys() and not is_effective(setting.key)
        ]
        assert wrong == []


class TestASettingWithoutEffect:
    @pytest.mark.parametrize(
        "key",
        [
            "python.fn-execution.bundle.size",
            "python.execution-mode",
            "state.backend.incremental",
            "execution.checkpointing.unaligned",
            "execution.buffer-timeout",
            "table.exec.mini-batch.enabled",
            "taskmanager.numberOfTaskSlots",
            "pekko.ask.timeout",
            "akka.ask.timeout",
            "pipeline.jars",
            "rest.flamegraph.enabled",
            "metrics.reporter.jmx.port",
            "metrics.reporter.jmx.a.b",
            "external-resource.gpu.amount",
            "kubernetes.a-key-of-a-later-release",
        ],
    )
    def test_a_setting_without_effect_is_accepted_and_remembered(self, key: str) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({key: "7"}))
        assert env.get_configuration().get_string(key, "") == "7"
        assert without_effect([key])[key].endswith(".")

    def test_an_effective_setting_is_not_among_them(self) -> None:
        assert without_effect(["parallelism.default", "pipeline.operator-chaining", "spark.x", "nonsense"]) == {}


class TestASpellingOfFlink1:
    def test_sets_the_same_option(self) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"pipeline.operator-chaining": "false"}))
        assert not env.is_chaining_enabled()


class TestASettingThatIsRefused:
    def test_names_the_reason_and_the_alternative(self) -> None:
        with pytest.raises(BadSetting, match=r"python\.pythonpath\. The workers would not find.*Set python\.files"):
            StreamExecutionEnvironment(Configuration.from_dict({"python.pythonpath": "/x"}))

    def test_a_value_that_asks_for_what_penstock_does_is_accepted(self) -> None:
        key = "security.ssl.internal.enabled"
        StreamExecutionEnvironment(Configuration.from_dict({key: "FALSE"}))
        with pytest.raises(BadSetting, match="would not be encrypted"):
            StreamExecutionEnvironment(Configuration.from_dict({key: "true"}))


class TestASuggestion:
    def test_a_near_miss_is_suggested(self) -> None:
        assert near_miss("paralelism.default") == "parallelism.default"
        assert near_miss("taskmanager.numberOfTaskSlot") == "taskmanager.numberOfTaskSlots"
        assert near_miss("pipeline.operater-chaining") == "pipeline.operator-chaining.enabled"

    def test_a_key_that_only_looks_alike_is_not(self) -> None:
        assert near_miss("state.checkpoints.compression") is None
        assert near_miss("execution.parallelism") is None


class TestARuling:
    def test_braces_abbreviate_keys(self) -> None:
        assert accepted("Why.", "a.{b c.d\n e} f").keys == ("a.b", "a.c.d", "a.e", "f")

    def test_a_placeholder_stands_for_one_part_and_the_last_one_for_any_rest(self) -> None:
        ruling = accepted("Why.", "a.<x>.b a.<x>.p.<y> c.*")
        assert ruling.matches("a.1.b")
        assert not ruling.matches("a.1.2.b")
        assert ruling.matches("a.1.p.2.3")
        assert ruling.matches("c.d.e")
        assert not ruling.matches("c")

    def test_harmless_values_are_compared_without_regard_to_case(self) -> None:
        ruling = refused("Why.", "a", fix="Do b.", harmless=("EventTime",))
        assert not ruling.refuses(" eventtime ")
        assert ruling.refuses("IngestionTime")


def test_a_program_with_thirty_settings_without_effect_logs_one_paragraph(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from penstock.common import without_effect as module

    monkeypatch.setattr(module, "_program", module.Noted())
    keys = [setting.key for setting in SETTINGS if setting.key.startswith("taskmanager.network.")][:30]
    assert len(keys) == 30
    for key, why in without_effect(keys).items():
        module.note(key, why)
    with caplog.at_level(logging.INFO, "penstock"):
        module.report()
        module.report()
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert all(key in record.getMessage() for key in keys)
    assert "\n" not in record.getMessage()
