"""Plain Python values as bytes: they round-trip, and everything else is left to pickle."""

import enum
import math
import os
import pickle
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.pickling import from_bytes, to_bytes, to_pickle
from penstock.common.plain import decode_plain, encode_plain

ZONES = st.one_of(
    st.none(),
    st.just(UTC),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.just(timezone(timedelta(hours=1), "one")),
    st.sampled_from(["Europe/Berlin", "America/New_York", "UTC"]).map(ZoneInfo),
)
WITH_HASH = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]),
    st.floats(),
    st.text(),
    st.text(st.characters(categories=["Cs", "L"])),
    st.binary(),
    st.decimals(allow_nan=False),
    st.sampled_from(["-0", "0E-10", "-NaN", "NaN12", "1E+999", "-0.00", "-Infinity"]).map(Decimal),
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.datetimes().map(lambda moment: moment.replace(fold=1)),
    st.times(timezones=st.sampled_from([None, UTC, timezone(timedelta(minutes=90))])),
    st.timedeltas(),
)
LEAVES = st.one_of(WITH_HASH, st.just(Decimal("-sNaN7")))
HASHABLE = st.recursive(
    WITH_HASH, lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.sets(HASHABLE, max_size=3),
        st.frozensets(HASHABLE, max_size=3),
        # Uniform values, which have a shape.
        st.lists(st.tuples(LEAVES, LEAVES), max_size=3),
        st.dictionaries(st.text(max_size=2), st.tuples(st.integers(), st.decimals()), max_size=3),
    ),
    max_leaves=12,
)


def same(one, other):
    """Return whether two values are equal, of the same classes, in the same order and to the same bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, (set, frozenset)):
        rest = list(other)
        for member in one:
            found = [place for place, each in enumerate(rest) if same(member, each)]
            if not found:
                return False
            del rest[found[0]]
        return not rest
    if isinstance(one, (datetime, time)):
        return (
            one.replace(tzinfo=None) == other.replace(tzinfo=None)
            and one.fold == other.fold
            and type(one.tzinfo) is type(other.tzinfo)
            and repr(one.tzinfo) == repr(other.tzinfo)
        )
    return one == other


def holds_one_object_twice(value):
    """Return whether a non-empty container occurs twice, other than a tuple of scalars."""
    seen = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (list, dict)) or (isinstance(each, (tuple, set, frozenset)) and each):
            if id(each) in seen:
                return True
            seen.add(id(each))
            waiting += [*each, *each.values()] if isinstance(each, dict) else each
    return False


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_a_plain_value_round_trips(value):
    data = encode_plain(value)
    if data is None:
        assert holds_one_object_twice(value)
        return
    assert same(decode_plain(data), value)
    assert data[0] not in (0xC1, 0xC4, 0xC5, 0xC6)
    # The decoded value is encoded the same way, regardless of hash order.
    assert encode_plain(decode_plain(data)) in (data, None)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_the_first_byte_of_a_nested_value_tells_it_from_a_pickle(value):
    assert same(from_bytes(to_bytes(value)), from_bytes(to_pickle(value)))
    assert to_pickle(value)[0] == 0x80
    assert to_bytes(value)[0] == (0x80 if encode_plain(value) is None else 1)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**64,
        -0.0,
        math.inf,
        "",
        b"",
        b"\x80\x05.",
        [],
        (),
        {},
        set(),
        frozenset(),
        [()],
        [[], {}, ()],
        {"a": [], "b": {}},
        {"a": [], "b": [(1, 2)]},
        {"a": {}, "b": (1,)},
        ([], {}),
        [(), ()],
        {(): (), (1,): frozenset()},
        {True: 1, 2: "x", 1.5: None, None: b"x", b"k": "v"},
        {("a", 1): 1, ("b", 2): 2},
        {frozenset({1}): {2}},
        {frozenset({(1, 2)}): [1]},
        (("a", 1), {"n": 1.5}, [1, 2]),
        [("a", 1)] * 3,
        {"name": "bob", "amount": Decimal("1.50"), "at": datetime(2024, 1, 1), "tags": {"a", "b"}, "pair": (1, 2)},
        {"$tuple": [1]},
        "\udc80",
        {"\ud800": "\udfff"},
        [datetime(2024, 1, 1), "2024-01-01T00:00:00", date(2024, 1, 1), UUID(int=5), str(UUID(int=5))],
        {1, "1", 1.5, (1,), b"1"},
        [[[[[(1,)]]]]],
    ],
    ids=repr,
)
def test_an_edge_case_round_trips(value):
    data = encode_plain(value)
    assert data is not None
    assert same(decode_plain(data), value)


class Text(str):
    pass


class Number(int):
    pass


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


@dataclass
class Point:
    x: int = 1


Pair = namedtuple("Pair", "a b")
NOT_PLAIN = [
    Text("x"),
    Number(1),
    Level.LOW,
    Word.A,
    Point(),
    Pair(1, 2),
    OrderedDict(a=1),
    defaultdict(list, a=[1]),
    Counter("ab"),
    bytearray(b"x"),
    1j,
    ...,
    range(3),
    int,
    np.int64(3),
    np.float64(0.5),
    np.zeros(2),
    {Text("x"): 1},
    {Word.A: 1},
    {Level.LOW: 1},
]


@pytest.mark.parametrize("value", NOT_PLAIN, ids=repr)
@pytest.mark.parametrize(
    "around",
    [
        lambda value: value,
        lambda value: [value],
        lambda value: (value,),
        lambda value: {"a": value},
        lambda value: [{"a": 1}, {"a": 2}, {"a": 3}, {"a": value}],
        lambda value: [(1, 2), (3, value)],
        lambda value: {"a": {"b": [1, [value]]}},
        lambda value: {"a": ((value,), datetime(2024, 1, 1))},
        lambda value: {"a": 2**70, "b": (value,)},
        lambda value: {"a": Decimal(1), "b": {(1, 2): value}},
    ],
)
def test_any_other_value_is_left_to_pickle(value, around):
    assert encode_plain(around(value)) is None
    again = from_bytes(to_bytes(around(value)))
    assert type(again) is type(around(value))


def test_a_custom_time_zone_is_left_to_pickle():
    class Own(timezone.__base__):
        def utcoffset(self, moment):
            return timedelta(0)

    assert encode_plain(datetime(2024, 1, 1, tzinfo=Own())) is None


def test_a_shared_object_stays_shared():
    shared = [1]
    for value in ([shared, shared], (shared, shared), {"a": shared, "b": shared}, [{"a": shared}, {"b": shared}]):
        assert encode_plain(value) is None
    first, second = from_bytes(to_bytes([shared, shared]))
    assert first is second


def test_a_recursive_value_is_left_to_pickle():
    value = [1]
    value.append(value)
    assert encode_plain(value) is None
    again = from_bytes(to_bytes(value))
    assert again[1] is again
    table: dict = {}
    table["self"] = (table,)
    assert encode_plain(table) is None


def test_deeply_shared_tuples_are_left_to_pickle():
    value: tuple = (1,)
    for _ in range(100):
        value = (value, value)
    assert encode_plain(value) is None
    assert len(to_bytes(value)) < 2000


def test_a_deeply_nested_value_round_trips_or_is_left_to_pickle():
    value: list = []
    for _ in range(200):
        value = [value, (1,)]
    assert from_bytes(to_bytes(value)) == value
    for _ in range(10_000):
        value = [value]
    assert encode_plain(value) is None


def test_sets_have_the_same_bytes_in_every_process():
    program = (
        "from penstock.common.plain import encode_plain;"
        "print(encode_plain([{'a', 'b', 'c', 'd', 'e', 'f'}, {1, 'x', (2, 'y')}, frozenset('ghijk')]).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(seen) == 1


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(min_size=1), st.binary().map(b"\xd4".__add__), st.binary().map(b"\xd5".__add__)))
def test_arbitrary_bytes_are_decoded_or_rejected(data):
    with suppress(ValueError, TypeError, ArithmeticError, LookupError, RecursionError):
        decode_plain(data)


@settings(max_examples=200, deadline=None)
@given(VALUES, st.data())
def test_damaged_bytes_are_decoded_or_rejected(value, draw):
    data = bytearray(encode_plain(value) or b"\x01")
    place = draw.draw(st.integers(0, len(data) - 1))
    data[place] = draw.draw(st.integers(0, 255))
    with suppress(ValueError, TypeError, ArithmeticError, LookupError, RecursionError):
        decode_plain(bytes(data))


@pytest.mark.parametrize(
    "data", [b"\xd4\x05l", b"\xd4\x01x\x01", b"\xd4\x01(\x90", b"\xd4\x03lTT\x90", b"\xd5\xc7\x00\x63"]
)
def test_an_unknown_shape_or_extension_type_is_rejected(data):
    with pytest.raises(ValueError, match=r"shape|letter|extension type"):
        decode_plain(data)


def test_decoding_never_runs_code_from_the_bytes(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    with suppress(Exception):
        decode_plain(pickle.dumps(Bomb(), protocol=5))
    assert not (tmp_path / "ran").exists()
