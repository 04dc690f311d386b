"""Buffers of typed records: each record is encoded once, with the content it was emitted with."""

from dataclasses import dataclass

import pytest

from penstock.common import Row, Types
from penstock.runtime.rows import TYPED
from penstock.runtime.typed_codec import declared_codec, hinted_codec
from penstock.state.serializers import NotEncodable, serializer_for


@dataclass
class Reading:
    sensor: str
    values: list[int]


@dataclass(frozen=True)
class Frozen:
    sensor: str
    value: int


MUTABLE = [Reading("a", [1]), Reading("b", [2, 3])]
IMMUTABLE = [Frozen("a", 1), Frozen("b", 2)]


def sent(codec, values):
    return codec.encode_many([codec.hold(value) for value in values])


@pytest.mark.parametrize("values", [MUTABLE, IMMUTABLE])
def test_records_that_match_a_hint_are_typed(values):
    codec = hinted_codec(serializer_for(type(values[0])))
    data = sent(codec, values)
    assert data[:1] == TYPED
    assert codec.decode_many(data) == values


@pytest.mark.parametrize("values", [MUTABLE, IMMUTABLE])
@pytest.mark.parametrize("other", [None, "text", Frozen("c", "three"), Reading("c", [True])])
def test_a_buffer_with_a_record_that_does_not_match_is_pickled(values, other):
    codec = hinted_codec(serializer_for(type(values[0])))
    data = sent(codec, [*values, other, *values])
    assert data[:1] != TYPED
    back = codec.decode_many(data)
    assert back == [*values, other, *values]
    assert repr(back[2]) == repr(other)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("make", [hinted_codec, declared_codec])
def test_a_record_is_sent_with_the_content_it_was_emitted_with(make, checked):
    serializer = serializer_for(Reading)
    codec = make(serializer) if make is hinted_codec else make(serializer, checked)
    reading = Reading("a", [1])
    held = codec.hold(reading)
    reading.values.append(2)
    assert codec.decode_many(codec.encode_many([held, codec.hold(reading)])) == [
        Reading("a", [1]),
        Reading("a", [1, 2]),
    ]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (Types.ROW([Types.STRING(), Types.LONG()]), [Row(f0="a", f1=1), Row(f0="b", f1=None)]),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), ("b", 2)]),
        (Types.BIG_INT(), [1, 2**80]),
        (Types.LONG(), [1, -(2**63)]),
        (Reading, MUTABLE),
        (Frozen, IMMUTABLE),
    ],
)
def test_records_of_a_declared_type_survive_a_round_trip(declared, values, checked):
    codec = declared_codec(serializer_for(declared), checked)
    assert codec.decode_many(sent(codec, values)) == values
    # A source's records are not held.
    assert codec.decode_many(codec.encode_many(values)) == values


@pytest.mark.parametrize(
    ("declared", "bad"),
    [(int, 2**63), (str, "\ud800"), (tuple[str, int], ("\ud800", 1)), (Reading, Reading("\ud800", []))],
)
def test_a_value_that_cannot_be_encoded_is_refused_with_a_message(declared, bad):
    codec = declared_codec(serializer_for(declared), True)
    with pytest.raises(NotEncodable, match="is not a"):
        sent(codec, [bad])
