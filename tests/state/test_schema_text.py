"""The schema texts in snapshots are parsed completely, and nothing else is accepted."""

import enum
from contextlib import suppress
from typing import Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.errors import PenstockError
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.state.serializers import serializer_for
from penstock.state.serializers.migrations import Versions, encode_migration
from penstock.state.serializers.schema_text import UnknownSchema, read_schema


class Maybe(TypedDict):
    a: int
    long: NotRequired[int]
    string: NotRequired[str]


class Odd(enum.Enum):
    COMMA = "a, b"
    QUOTE = "it's (<>)"
    NUMBER = -3


LEAVES = st.sampled_from([int, str, bool, float, bytes, Maybe, Odd, Literal["a, b", "'", 3, None]])
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        st.lists(inner, max_size=3).map(lambda kinds: tuple[tuple(kinds)]),
        inner.map(lambda kind: tuple[kind, ...]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: Types.MAP(Types.STRING(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: Types.ROW_NAMED([f"f {i}" for i in range(len(kinds))], kinds)
        ),
        st.lists(inner, min_size=1, max_size=3).map(Types.ROW),
    ),
    max_leaves=8,
)


def pieces(described):
    yield described.text
    for part in described.parts:
        yield from pieces(part)


@given(TYPES)
def test_the_schema_of_every_type_is_parsed_completely(kind):
    try:
        schema = ValueStateDescriptor("s", kind).schema()
    except (PenstockError, TypeError):
        return
    read = read_schema(schema)
    assert f"value {read.value.text}" == schema
    # Each part has the text that the part alone would have.
    assert len(list(pieces(read.value))) >= 1
    assert all(read_schema(f"value {text}").value.text == text for text in pieces(read.value))


def test_local_classes_and_optional_keys_are_parsed():
    class Local(TypedDict):
        a: NotRequired[int]
        b: str

    schema = serializer_for(tuple[Local, int]).schema()
    (first, second) = read_schema(f"value {schema}").value.parts
    assert first.title.endswith("<locals>.Local")
    assert (first.names, first.optional, second.kind) == (("a", "b"), frozenset("a"), "long")
    (maybe, after) = read_schema(f"value {serializer_for(tuple[Maybe, str]).schema()}").value.parts
    assert (maybe.optional, after.kind) == (frozenset({"long", "string"}), "string")


def test_map_keys_and_hints_are_parsed():
    read = read_schema(MapStateDescriptor("m", tuple[str, int], list[int]).schema())
    assert read.key is not None
    assert (read.kind, read.key.text, read.value.text) == ("map", "tuple<string, long>", "list<long>")
    assert read_schema("value long or pickle").or_any
    assert read_schema("value long or any").or_any


@given(st.text(alphabet="<>(),:? abclistmprow.='", max_size=30))
def test_any_other_text_raises_only_unknown_schema(text):
    with suppress(UnknownSchema):
        read_schema(f"value {text}")


def test_a_text_that_is_nested_too_deeply_is_rejected():
    with pytest.raises(UnknownSchema):
        read_schema("value " + "list<" * 100_000 + "long" + ">" * 100_000)


@given(st.binary(max_size=40))
def test_invalid_migrations_raise_only_a_penstock_error(migration):
    with suppress(PenstockError):
        Versions((migration,))


@pytest.mark.parametrize("data", [b"\xc1\x02\x07", b"\xc1\x00\x07", b"\xc1\xff\x07"])
def test_a_value_of_an_unknown_version_is_rejected(data):
    versions = Versions((encode_migration(["double"], False),))
    assert versions.decoder(serializer_for(float).decode)(b"\x07") == 7.0
    with pytest.raises(PenstockError, match="A stored value has version"):
        versions.current(data)
