"""docs/migrate/compatibility.md: what it says is what PyFlink's wheel and this code say."""

import importlib
import inspect
from enum import Enum
from typing import Any

import pytest

from penstock.absent import ALTERNATIVES, AbsentAttribute, AbsentImport
from penstock.compatibility import DIFFERS
from scripts.compatibility import ABSENT, PAGE, Comparison, StaleEntries, call_difference, render
from scripts.pyflink_names import Parameter, public_names

pytestmark = pytest.mark.usefixtures("pyflink_wheel")


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "docs/migrate/compatibility.md is stale: run make compatibility"


def test_every_absent_name_raises_with_its_alternative_however_it_is_asked_for() -> None:
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
    assert asked > 100


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
    assert asked > 50


def test_an_absent_entry_for_a_name_that_is_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("MapFunction", "DataStream.map", "common.time"):
        monkeypatch.setitem(ALTERNATIVES, key, "Not there.")
    with pytest.raises(StaleEntries) as raised:
        render()
    for key in ("MapFunction", "DataStream.map", "common.time"):
        assert f"{key} is there, but is listed as absent" in str(raised.value)


def test_an_entry_for_what_pyflink_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALTERNATIVES, "WarpDrive", "Not there.")
    monkeypatch.setitem(DIFFERS, "DataStream.warp", "faster")
    with pytest.raises(StaleEntries) as raised:
        render()
    assert "WarpDrive is listed as absent, but PyFlink has no such name" in str(raised.value)
    assert "DataStream.warp has a note, but is no name that both have" in str(raised.value)


def test_an_absent_name_without_an_entry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ALTERNATIVES, "SourceFunction")
    monkeypatch.delitem(ALTERNATIVES, "datastream.checkpoint_storage")
    with pytest.raises(StaleEntries) as raised:
        render()
    assert "SourceFunction is absent and has no entry" in str(raised.value)
    assert "datastream.checkpoint_storage is absent and has no entry" in str(raised.value)


class TestCalls:
    """A name is the same if every call that PyFlink allows is allowed here."""

    wanted = (Parameter("func", "plain"), Parameter("output_type", "plain", "None"))

    def difference(self, function: object) -> str:
        assert inspect.isfunction(function)
        return call_difference(self.wanted, function, False)

    def test_more_optional_parameters_are_no_difference(self) -> None:
        assert self.difference(lambda func, output_type=None, more=1: None) == ""

    def test_another_name(self) -> None:
        assert self.difference(lambda f, output_type=None: None) == "`func` is called `f`"

    def test_no_such_parameter(self) -> None:
        assert self.difference(lambda func: None) == "no parameter `output_type`"

    def test_another_place(self) -> None:
        said = self.difference(lambda output_type=None, func=None: None)
        assert "`func` stands at another place" in said

    def test_another_default(self) -> None:
        assert self.difference(lambda func, output_type=3: None) == "`output_type` has the default `3`, not `None`"

    def test_a_default_that_is_missing(self) -> None:
        assert self.difference(lambda func, output_type: None) == "`output_type` has no default, not `None`"

    def test_something_more_that_must_be_given(self) -> None:
        def stricter(func, output_type=None, *, uid):  # type: ignore[no-untyped-def]
            return None

        assert self.difference(stricter) == "`uid` must be given too"

    def test_java_objects_do_not_count(self) -> None:
        wanted = [*self.wanted, Parameter("j_function", "plain", "None")]
        assert call_difference(wanted, lambda func, output_type=None: None, False) == ""


def test_a_class_has_the_members_of_bases_that_are_hidden() -> None:
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
