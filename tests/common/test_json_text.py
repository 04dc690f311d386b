"""JSON of texts with unpaired surrogates, which come from file names and arguments that are not UTF-8."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.json_text import in_utf_8, to_json

FILE = b"a\xff.csv".decode(errors="surrogateescape")
TEXT = st.text(st.characters(categories=None), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


class Inner(msgspec.Struct, tag="inner"):
    texts: list[str]


class Outer(msgspec.Struct):
    name: str
    inner: Inner | None = None
    by_name: dict[str, int] = {}
    json: msgspec.Raw = msgspec.Raw(b"{}")


def test_text_in_utf_8_stays() -> None:
    assert in_utf_8("ä\0😀") == "ä\0😀"
    assert to_json(Outer(name="ä😀")) == msgspec.json.encode(Outer(name="ä😀"))


def test_unpaired_surrogates_become_escapes() -> None:
    assert in_utf_8(f"cannot open {FILE}") == r"cannot open a\udcff.csv"


def test_every_text_of_a_struct_is_escaped() -> None:
    value = Outer(name=FILE, inner=Inner(texts=["ä", FILE]), by_name={FILE: 1}, json=msgspec.Raw(b'{"x":[1]}'))
    assert json.loads(to_json(value)) == {
        "name": r"a\udcff.csv",
        "inner": {"type": "inner", "texts": ["ä", r"a\udcff.csv"]},
        "by_name": {r"a\udcff.csv": 1},
        "json": {"x": [1]},
    }
    decoded = msgspec.json.decode(to_json(value), type=Outer)
    assert decoded.inner == Inner(texts=["ä", r"a\udcff.csv"])


@given(VALUES)
def test_every_value_can_be_encoded(value: Any) -> None:
    decoded = json.loads(to_json(value))
    assert type(decoded) is type(value)
    if isinstance(value, str):
        assert decoded == in_utf_8(value)


def test_values_without_a_json_form_are_still_refused() -> None:
    with pytest.raises(TypeError):
        to_json(object())
