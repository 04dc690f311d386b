"""docs/migrate/compatibility.md agrees with PyFlink's wheel and with the code."""

import importlib
import inspect
from enum import Enum
from typing import Any

import pytest

from penstock.absent import ALTERNATIVES, AbsentAttribute, AbsentImport
from penstock.compatibility import DIFFERS
from scripts import compatibility
from scripts.compatibility import (
    ABSENT,
    DIFFERENT,
    NOTED,
    PAGE,
    SAME,
    WITHOUT_EFFECT,
    Comparison,
    Finding,
    StaleEntries,
    call_difference,
    render,
)
from scripts.pyflink_names import Parameter, public_names

pytestmark = pytest.mark.usefixtures("pyflink_wheel")


def test_the_compatibility_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "docs/migrate/compatibility.md is stale: run `make compatibility`"


def test_every_absent_name_raises_with_its_alternative() -> None:
    comparison = Comparison()
    asked = 0
    for pyflink_module in comparison.modules:
        module = pyflink_module.replace("pyflink", "penstock", 1)
        for finding in comparison.modules[pyflink_module] + comparison.reexports[pyflink_module]:
            if finding.status != ABSENT or "." in finding.path:
                continue
            asked += 1
            with pytest.raises(AbsentImport) as raised:
                exec(f"from {module} import {finding.path}")
            assert any(text in str(raised.value) for text in (finding.how, ALTERNATIVES.get(module[9:], finding.how)))
    assert asked > 50


def test_every_absent_member_raises_with_its_alternative() -> None:
    comparison = Comparison()
    asked = 0
    for pyflink_module, findings in comparison.modules.items():
        absent = {finding.path for finding in findings if finding.status == ABSENT}
        for finding in findings:
            owner, _, member = finding.path.rpartition(".")
            if finding.path not in absent or not owner or owner in absent:
                continue
            found: Any = importlib.import_module(pyflink_module.replace("pyflink", "penstock", 1))
            for part in owner.split("."):
                found = getattr(found, part)
            if isinstance(found, type) and issubclass(found, Enum):
                found = next(iter(found))
            asked += 1
            with pytest.raises(AbsentAttribute) as raised:
                getattr(found, member)
            assert finding.how in str(raised.value)
    assert asked > 5


def test_an_absent_entry_for_an_existing_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("MapFunction", "DataStream.map", "common.time"):
        monkeypatch.setitem(ALTERNATIVES, key, "Not there.")
    with pytest.raises(StaleEntries) as raised:
        render()
    for key in ("MapFunction", "DataStream.map", "common.time"):
        assert f"{key} exists, but is listed as absent" in str(raised.value)


def test_an_entry_for_a_name_unknown_to_pyflink_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALTERNATIVES, "WarpDrive", "Not there.")
    monkeypatch.setitem(DIFFERS, "DataStream.warp", "faster")
    with pytest.raises(StaleEntries) as raised:
        render()
    assert "WarpDrive is listed as absent, but PyFlink has no such name" in str(raised.value)
    assert "DataStream.warp has a note, but the two libraries do not share this name" in str(raised.value)


def test_an_absent_name_without_an_entry_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ALTERNATIVES, "AvroParquetReaders")
    monkeypatch.delitem(ALTERNATIVES, "datastream.connectors.pulsar")
    with pytest.raises(StaleEntries) as raised:
        render()
    assert "AvroParquetReaders is absent and has no entry" in str(raised.value)
    assert "datastream.connectors.pulsar is absent and has no entry" in str(raised.value)


def test_a_program_can_use_97_percent_of_the_names_and_see_no_difference() -> None:
    share = Comparison().share()
    assert share.percent >= 97
    assert share.names > 1200


def test_every_name_that_is_not_the_same_has_its_reason() -> None:
    findings = [finding for found in Comparison().modules.values() for finding in found]
    assert {finding.status for finding in findings} == {SAME, NOTED, WITHOUT_EFFECT, DIFFERENT, ABSENT}
    unexplained = [finding.path for finding in findings if finding.status != SAME and not finding.how]
    assert unexplained == []


class TestTheShare:
    @pytest.fixture
    def comparison(self) -> Comparison:
        return Comparison()

    def test_a_difference_lowers_it(self, comparison: Comparison) -> None:
        before = comparison.share()
        comparison.modules["pyflink.datastream"].append(Finding("warp", DIFFERENT, "slower"))
        after = comparison.share()
        assert (after.accepted, after.names) == (before.accepted, before.names + 1)

    def test_accepted_calls_raise_it_and_names_with_a_note_lower_it(self, comparison: Comparison) -> None:
        before = comparison.share()
        found = [Finding("a", SAME), Finding("b", NOTED, "later"), Finding("c", WITHOUT_EFFECT, "why")]
        comparison.modules["pyflink.common"] += found
        after = comparison.share()
        assert (after.accepted, after.names) == (before.accepted + 2, before.names + 3)

    def test_connectors_of_java_and_java_objects_are_left_out(self, comparison: Comparison) -> None:
        before = comparison.share()
        comparison.modules["pyflink.datastream.connectors.jdbc"].append(Finding("a", ABSENT, "Java"))
        comparison.modules["pyflink.datastream"].append(Finding("b", ABSENT, ALTERNATIVES["java_gateway"]))
        comparison.modules["pyflink.metrics"].append(Finding("c", ABSENT, "not counted"))
        assert comparison.share() == before


def test_accepted_calls_and_notes_that_penstock_lacks_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compatibility.REASONS, "DataStream.warp", "why")
    monkeypatch.setattr(compatibility, "SAME_RESULTS", {"DataStream.map"})
    problems = Comparison().problems
    assert "DataStream.warp is listed as accepted, but Penstock has no such name" in problems
    assert "DataStream.map is in SAME_RESULTS, but has no note" in problems


class TestCalls:
    """A name is compatible if Penstock accepts every call that PyFlink accepts."""

    wanted = (Parameter("func", "plain"), Parameter("output_type", "plain", "None"))

    def difference(self, function: object) -> str:
        assert inspect.isfunction(function)
        return call_difference(self.wanted, function, False)

    def test_additional_optional_parameters_are_compatible(self) -> None:
        assert self.difference(lambda func, output_type=None, more=1: None) == ""

    def test_a_renamed_parameter_is_reported(self) -> None:
        assert self.difference(lambda f, output_type=None: None) == "`func` is called `f`"

    def test_a_missing_parameter_is_reported(self) -> None:
        assert self.difference(lambda func: None) == "no parameter `output_type`"

    def test_a_moved_parameter_is_reported(self) -> None:
        said = self.difference(lambda output_type=None, func=None: None)
        assert "`func` is at a different position" in said

    def test_a_changed_default_is_reported(self) -> None:
        assert self.difference(lambda func, output_type=3: None) == "`output_type` has the default `3`, not `None`"

    def test_a_missing_default_is_reported(self) -> None:
        assert self.difference(lambda func, output_type: None) == "`output_type` has no default, not `None`"

    def test_a_default_that_is_a_product_is_computed(self) -> None:
        wanted = (Parameter("size", "plain", "1024 * 1024"),)
        assert call_difference(wanted, lambda size=1048576: None, False) == ""
        assert "not `1024 * 1024`" in call_difference(wanted, lambda size=5: None, False)

    def test_an_additional_required_parameter_is_reported(self) -> None:
        def stricter(func, output_type=None, *, uid):  # type: ignore[no-untyped-def]
            return None

        assert self.difference(stricter) == "`uid` is also required"

    def test_a_parameter_that_a_java_object_replaces_can_be_required(self) -> None:
        wanted = (Parameter("j_size", "plain", "None"), Parameter("size", "plain", "None"))

        def required(*, size):  # type: ignore[no-untyped-def]
            return None

        assert call_difference(wanted, required, False) == ""
        assert call_difference(wanted[1:], required, False) != ""

    def test_parameters_for_java_objects_are_ignored(self) -> None:
        wanted = [*self.wanted, Parameter("j_function", "plain", "None")]
        assert call_difference(wanted, lambda func, output_type=None: None, False) == ""


def test_names_that_a_module_installs_are_its_own() -> None:
    source = """
def _install():
    from pyflink.datastream import connectors
    from pyflink.datastream.connectors import kafka
    setattr(connectors, 'KafkaSource', kafka.KafkaSource)
    setattr(other, 'Wrong', kafka.KafkaSource)
"""
    names = public_names("some.module", lambda file: source, True)
    assert {name: found.home for name, found in names.items()} == {"KafkaSource": "pyflink.datastream.connectors"}


def test_a_class_includes_members_of_private_base_classes() -> None:
    source = """
__all__ = ["Shown", "Other"]
from elsewhere import Other
T = TypeVar("T")
class Hidden:
    def clear(self): ...
class Shown(Hidden, Generic[T]):
    LIMIT = 5
    def _inside(self): ...
    @property
    def size(self): ...
    @staticmethod
    def of(a, *rest, b=1): ...
"""
    names = public_names("some.module", lambda file: source, False)
    assert list(names) == ["Shown", "Other"]
    assert names["Other"].home == "elsewhere"
    members = names["Shown"].public_members()
    assert {name: member.kind for name, member in members.items()} == {
        "clear": "method",
        "LIMIT": "value",
        "size": "property",
        "of": "method",
    }
    assert members["of"].parameters == [
        Parameter("a", "plain"),
        Parameter("rest", "*args"),
        Parameter("b", "keyword", "1"),
    ]
