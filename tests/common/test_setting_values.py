"""Every setting is validated when a job is built: a bad value is rejected with its key and the accepted values."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.options import ALIASES, OPTIONS, BadSetting, check_values
from penstock.common.setting_types import (
    Choice,
    Class,
    Length,
    Number,
    Pairs,
    Ports,
    SettingType,
    Size,
    Text,
    Truth,
    Whole,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

NONSENSE = [
    "",
    " ",
    "abc",
    "-1",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1 parsec",
    "0x10",
    "1_000",
    "\u0663",
    "9" * 40,
    "1;2",
]
TYPED = {key: option.type for key, option in OPTIONS.items() if not isinstance(option.type, Text)}


def beyond(kind: SettingType) -> list[str]:
    """Return values just outside the accepted range."""
    if isinstance(kind, (Whole, Length, Size)):
        return [str(kind.most + 1), "1.5", "1e3", *([str(kind.least - 1)] if kind.least else [])]
    if isinstance(kind, Number):
        return [str(kind.most + 1), "1,5", "1 s", *([str(kind.least - 0.1)] if kind.least else [])]
    if isinstance(kind, Ports):
        return ["65536", "9070-9067", "1,,2", "1-2-3", "1.5"]
    return ["0", "yes", "1.5"]


BAD = [
    (key, bad)
    for key, kind in TYPED.items()
    for bad in [*NONSENSE, *beyond(kind)]
    if bad.strip() or not isinstance(kind, Pairs)
]


class TestABadValue:
    @pytest.mark.parametrize(("key", "bad"), BAD)
    def test_a_bad_value_is_rejected_with_key_value_and_accepted_values(self, key: str, bad: str) -> None:
        with pytest.raises(BadSetting) as refused:
            check_values({key: bad})
        assert str(refused.value) == f"{key} is '{bad}'. Set it to {OPTIONS[key].type.accepted}."
        assert not refused.value.retryable

    @pytest.mark.parametrize("key", TYPED)
    def test_a_bad_value_is_rejected_from_every_source(
        self, key: str, monkeypatch: pytest.MonkeyPatch, launched: Callable[[dict[str, str]], None]
    ) -> None:
        named = pytest.raises(BadSetting, match=rf"^{key} is '-1'\. Set it to ")
        with named:
            StreamExecutionEnvironment(Configuration.from_dict({key: "-1"}))
        env = StreamExecutionEnvironment()
        with named:
            env.configure(Configuration.from_dict({key: "-1"}))
        stream = env.from_collection([1]).key_by(lambda n: n).map(lambda n: n)
        env.get_configuration().set_string(key, "-1")
        with named:
            env.execute_async("job")
        with named:
            env.get_execution_plan()
        with named:
            JobHarness(stream)
        monkeypatch.setenv("PENSTOCK_PROPERTIES", f"{key}: -1")
        with named:
            StreamExecutionEnvironment()
        monkeypatch.delenv("PENSTOCK_PROPERTIES")
        launched({key: "-1"})
        with named:
            StreamExecutionEnvironment()

    @pytest.mark.parametrize("alias", [alias for alias, key in ALIASES.items() if key in TYPED])
    def test_a_bad_value_is_rejected_under_an_alias(self, alias: str) -> None:
        with pytest.raises(BadSetting, match=f"^{ALIASES[alias]} is '-1'"):
            StreamExecutionEnvironment(Configuration.from_dict({alias: "-1"}))

    def test_an_overridden_bad_value_is_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_PROPERTIES", "parallelism.default: many")
        assert StreamExecutionEnvironment(Configuration.from_dict({"parallelism.default": 3})).get_parallelism() == 3

    @given(st.text(max_size=12))
    def test_parsing_raises_no_error_other_than_bad_setting(self, text: str) -> None:
        for key in OPTIONS:
            try:
                check_values({key: text})
            except BadSetting:
                pass

    def test_a_bad_value_of_a_program_defined_key_is_rejected_when_read(self) -> None:
        config = Configuration.from_dict({"my.key": "abc"})
        for read in (config.get_integer, config.get_float, config.get_boolean):
            with pytest.raises(BadSetting, match=r"my\.key is 'abc'\. Set it to "):
                read("my.key", 1)  # type: ignore[operator]


class TestAGoodValue:
    @pytest.mark.parametrize(
        ("key", "text", "expected"),
        [
            ("parallelism.default", " 4 ", 4),
            ("execution.checkpointing.interval", "0", 0),
            ("execution.checkpointing.interval", "10 s", 10_000),
            ("execution.checkpointing.timeout", "2H", 7_200_000),
            ("execution.checkpointing.mode", "at-least-once", "AT_LEAST_ONCE"),
            ("execution.runtime-mode", "batch", "BATCH"),
            ("restart-strategy.type", "FixedDelay", "fixed-delay"),
            ("restart-strategy.type", "off", "none"),
            ("restart-strategy.exponential-delay.backoff-multiplier", ".5e1", 5.0),
            ("restart-strategy.fixed-delay.attempts", str(2**31), 2**31),
            ("taskmanager.memory.segment-size", "32 kb", 32_768),
            ("state.backend.rocksdb.memory.cache", "1GB", 1 << 30),
            ("state.backend", "fs", "filesystem"),
            ("state.backend", "shop.backends:Mine", "shop.backends:Mine"),
            ("penstock.slots.wait", "TRUE", True),
            ("pipeline.global-job-parameters", "a:b, c : d e", {"a": "b", "c": "d e"}),
            ("pipeline.global-job-parameters", "{a: b, c: 1}", {"a": "b", "c": "1"}),
            ("pipeline.global-job-parameters", "a:'x:y,z', 'b:c':\"it's\"", {"a": "x:y,z", "b:c": "it's"}),
            ("pipeline.global-job-parameters", "a:'it''s',b:", {"a": "it's", "b": ""}),
            ("pipeline.global-job-parameters", " ", {}),
            ("state.checkpoints.dir", "", ""),
            ("state.checkpoints.dir", " /with blanks ", " /with blanks "),
        ],
    )
    def test_a_good_value_is_parsed_as_its_type(self, key: str, text: str, expected: Any) -> None:
        assert Configuration.from_dict({key: text}).get(OPTIONS[key]) == expected

    @pytest.mark.parametrize("key", OPTIONS)
    def test_the_documented_default_parses_to_the_default(self, key: str) -> None:
        option = OPTIONS[key]
        assert Configuration().get(option) == option.default
        if option.default not in (None, "") and "(" not in option.default_text:
            assert option.type.parse(key, option.default_text) == option.default

    @pytest.mark.parametrize("kind", [Whole(1, 5), Length(1, 5), Size(1, 5)])
    def test_bounds_are_inclusive(self, kind: SettingType) -> None:
        assert [kind.parse("key", text) for text in ("1", "5")] == [1, 5]

    @pytest.mark.parametrize("kind", [Choice("A_B", "c"), Class("A_B", "c", also={}), Truth()])
    def test_accepted_values_are_listed_in_the_error(self, kind: SettingType) -> None:
        with pytest.raises(BadSetting, match=r"Set it to (A_B|true)"):
            kind.parse("key", "z")
