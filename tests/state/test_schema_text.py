"""What snapshots say of a state's type, read back: all of it, and nothing else."""

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
def test_every_type_is_read_to_its_last_letter(kind):
    try:
        schema = ValueStateDescriptor("s", kind).schema()
    except (PenstockError, TypeError):
        return
    read = read_schema(schema)
    assert f"value {read.value.text}" == schema
    # Each part is what that part alone would be called.
    assert len(list(pieces(read.value))) >= 1
    assert all(read_schema(f"value {text}").value.text == text for text in pieces(read.value))


def test_a_class_of_a_function_and_keys_that_need_not_be_there():
    class Local(TypedDict):
        a: NotRequired[int]
        b: str

    schema = serializer_for(tuple[Local, int]).schema()
    (first, second) = read_schema(f"value {schema}").value.parts
    assert first.title.endswith("<locals>.Local")
    assert (first.names, first.optional, second.kind) == (("a", "b"), frozenset("a"), "long")
    (maybe, after) = read_schema(f"value {serializer_for(tuple[Maybe, str]).schema()}").value.parts
    assert (maybe.optional, after.kind) == (frozenset({"long", "string"}), "string")


def test_the_key_of_a_map_and_a_hint():
    read = read_schema(MapStateDescriptor("m", tuple[str, int], list[int]).schema())
    assert read.key is not None
    assert (read.kind, read.key.text, read.value.text) == ("map", "tuple<string, long>", "list<long>")
    assert read_schema("value long or pickle").or_any
    assert read_schema("value long or any").or_any


@given(st.text(alphabet="<>(),:? abclistmprow.='", max_size=30))
def test_any_other_text_is_refused_and_nothing_worse(text):
    with suppress(UnknownSchema):
        read_schema(f"value {text}")


def test_a_text_that_is_nested_too_deep_is_refused():
    with pytest.raises(UnknownSchema):
        read_schema("value " + "list<" * 100_000 + "long" + ">" * 100_000)


@given(st.binary(max_size=40))
def test_versions_that_make_no_sense_are_refused_and_nothing_worse(way):
    with suppress(PenstockError):
        Versions((way,))


@pytest.mark.parametrize("data", [b"\xc1\x02\x07", b"\xc1\x00\x07", b"\xc1\xff\x07"])
def test_a_value_of_a_version_there_is_not_is_refused(data):
    versions = Versions((encode_migration(["double"], False),))
    assert versions.decoder(serializer_for(float).decode)(b"\x07") == 7.0
    with pytest.raises(PenstockError, match="A stored value is of version"):
        versions.current(data)
