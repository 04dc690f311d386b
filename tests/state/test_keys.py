"""The canonical bytes of a key: which values are the same key, and which cannot be keys."""

import math
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Instant, Row, RowKind
from penstock.errors import PenstockError
from penstock.state.keys import KeyTypeError, decode_key, encode_key

np = pytest.importorskip("numpy")

NAN = float("nan")
REFUSED = "refused"

# The bytes of every kind of key. Never change a line: it would orphan the state of every job.
GOLDEN = [
    ("", "a0"),
    ("user-1", "a6757365722d31"),
    ("é", "a2c3a9"),
    ("x" * 32, "d920" + "78" * 32),
    (0, "00"),
    (1, "01"),
    (-1, "ff"),
    (128, "cc80"),
    (-129, "d1ff7f"),
    (2**63 - 1, "cf7fffffffffffffff"),
    (-(2**63), "d38000000000000000"),
    (2**64 - 1, "cfffffffffffffffff"),
    (2**64, "c70901010000000000000000"),
    (-(2**63) - 1, "c70901ff7fffffffffffffff"),
    (1.0, "cb3ff0000000000000"),
    (0.0, "cb0000000000000000"),
    (NAN, "cb7ff8000000000000"),
    (math.inf, "cb7ff0000000000000"),
    (True, "c3"),
    (False, "c2"),
    (None, "c0"),
    (b"", "c400"),
    (b"a", "c40161"),
    ((), "90"),
    ((1,), "9101"),
    (("a", 1, None), "93a16101c0"),
    (((1, 2), ("a",)), "9292010291a161"),
    (Decimal("1.50"), "c705023135452d31"),
    (Decimal("-100"), "d6022d314532"),
    (Decimal("0.00"), "c70302304530"),
    (Decimal("NaN"), "c703024e614e"),
    (Decimal("-Infinity"), "c709022d496e66696e697479"),
    (datetime(1970, 1, 1, tzinfo=UTC), "d40300"),
    (datetime(2019, 4, 17, 16, 0, tzinfo=UTC), "c707030586bbfa4e6000"),
    (datetime(2019, 4, 17, 16, 0), "c707040586bbfa4e6000"),
    (date(2019, 4, 17), "d5054653"),
    (date(1969, 12, 31), "d405ff"),
    (time(1, 2, 3, 4), "c7050600dde878c4"),
    (timedelta(days=1), "c70507141dd76000"),
    (timedelta(microseconds=-1), "d407ff"),
    (UUID(int=1), "d80800000000000000000000000000000001"),
    (Row(1, "a"), "c707099300c09201a161"),
    (Row(id=1, name="a"), "c70f09930092a26964a46e616d659201a161"),
    (Row.of_kind(RowKind.DELETE, 1), "c705099303c09101"),
]


def same(left, right):
    return encode_key(left) == encode_key(right)


@pytest.mark.parametrize(("key", "data"), GOLDEN, ids=[repr(key)[:40] for key, _ in GOLDEN])
def test_the_bytes_of_a_key_never_change(key, data):
    assert encode_key(key).hex() == data
    if key == key:
        back = decode_key(bytes.fromhex(data))
        assert back == key
        assert type(back) is type(key)


def test_all_golden_keys_are_different():
    assert len({data for _, data in GOLDEN}) == len(GOLDEN)


# Values with the same letter are the same key; a set cannot be a key.
IDENTITIES = [
    (1, "a"),
    (1.0, "b"),
    (True, "c"),
    (np.int64(1), "a"),
    ((1,), "d"),
    ([1], "d"),
    ({1}, REFUSED),
    (None, "e"),
    (NAN, "f"),
    # Values that represent a Python value, or look like one.
    (np.uint8(1), "a"),
    (np.float64(1.0), "b"),
    (np.float32(1.0), "b"),
    (np.bool_(True), "c"),
    ((np.int64(1),), "d"),
    (namedtuple("One", "x")(1), "d"),
    (np.float64("nan"), "f"),
    (-NAN, "f"),
    ("1", "g"),
    (np.str_("1"), "g"),
    (b"1", "h"),
    (np.bytes_(b"1"), "h"),
    (0.0, "i"),
    (-0.0, "i"),
    (0, "j"),
    (False, "k"),
    (Decimal("1"), "l"),
    (Decimal("1.00"), "l"),
    (Decimal("0.1E1"), "l"),
    (Row(1), "m"),
    (Row(x=1), "n"),
    ((1.0,), "o"),
    ((True,), "p"),
    (((1,),), "q"),
    (2**64, "r"),
    ("18446744073709551616", "s"),
]


@pytest.mark.parametrize(("left", "left_class"), IDENTITIES, ids=repr)
def test_pairs_of_keys_are_the_same_different_or_rejected(left, left_class):
    for right, right_class in IDENTITIES:
        if REFUSED in (left_class, right_class):
            with pytest.raises(KeyTypeError):
                same(left, right)
        else:
            assert same(left, right) == (left_class == right_class), right


def test_an_instant_is_the_same_key_in_every_time_zone_but_not_as_a_naive_time():
    paris = datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Paris"))
    utc = datetime(2024, 7, 1, 12, tzinfo=UTC)
    assert same(paris, utc)
    assert decode_key(encode_key(paris)) == paris
    assert not same(utc, utc.replace(tzinfo=None))


def test_both_occurrences_of_a_repeated_hour_are_different_keys():
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    second = first.replace(fold=1)
    assert not same(first, second)
    assert decode_key(encode_key(second)) == datetime(2024, 10, 27, 1, 30, tzinfo=UTC)


def test_decimals_are_compared_beyond_the_precision_of_the_context():
    long = Decimal("1." + "0" * 40 + "1")
    with localcontext() as context:
        context.prec = 3
        assert decode_key(encode_key(long)).compare_total(long) == 0
    assert not same(long, Decimal(1))


def test_a_round_decimal_is_displayed_as_before():
    assert str(decode_key(encode_key(Decimal("100")))) == "100"


def test_a_row_key_keeps_its_field_names_in_order():
    # Row(a, b) == Row(b, a), but if the fields of a key moved, key[0] would return another field.
    assert not same(Row(a=1, b=2), Row(b=2, a=1))
    back = decode_key(encode_key(Row(b=2, a=1)))
    assert list(back) == [2, 1]


def test_nested_tuples_are_decoded_as_tuples():
    key = ((1, (2.0, Row(x=(3,)))), date(2024, 1, 1))
    assert decode_key(encode_key(key)) == key


class Colour(Enum):
    RED = 1


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    YES = "yes"


class Text(str):
    pass


@dataclass(frozen=True)
class Order:
    number: int


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"a": 1}, r"A value of type dict cannot be a key.*r\['id'\]"),
        ({1}, "A value of type set cannot be a key.*sorted"),
        (frozenset([1]), "A value of type frozenset cannot be a key.*sorted"),
        (bytearray(b"a"), "A value of type bytearray cannot be a key.*bytes"),
        (Order(1), r"Order cannot be a key.*lambda r: r\.number"),
        (Colour.RED, r"Colour cannot be a key.*\.name or \.value"),
        (Size.SMALL, r"Size cannot be a key.*\.name or \.value"),
        (Word.YES, r"Word cannot be a key.*\.name or \.value"),
        (Text("a"), r"Text cannot be a key.*plain str"),
        (Instant(1, 2), "Instant cannot be a key.*to_epoch_milli"),
        (object(), r"A value of type object cannot be a key.*lambda r: r\.id"),
        (1j, "A value of type complex cannot be a key"),
        (np.datetime64("2024-01-01T00:00:00.000000001"), "datetime64 cannot be a key"),
        (np.timedelta64(1, "ns"), "timedelta64 cannot be a key"),
        (np.longdouble(1), "longdouble cannot be a key"),
        (np.array([1]), "ndarray cannot be a key"),
        ("\ud800", "surrogate"),
        (time(1, tzinfo=UTC), "zone"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside the years"),
        ((1, {2}), r"A value of type set cannot be a key\.? ?.*\(at element 1 of the tuple\)"),
        ((1, (2, {})), r"\(at element 1 of the tuple, in element 1 of the tuple\)"),
        (Row(id=1, tags={}), r"\(at field 'tags' of the Row\)"),
        (Row({}), r"\(at field 0 of the Row\)"),
        ((Row(1, "\ud800"),), r"surrogate.*\(at field 1 of the Row, in element 0 of the tuple\)"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_invalid_key_raises_an_error_with_reason_location_and_fix(key, message):
    with pytest.raises(KeyTypeError, match=message) as caught:
        encode_key(key)
    assert isinstance(caught.value, PenstockError)


def test_a_pandas_timestamp_is_rejected_because_of_its_nanoseconds():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(KeyTypeError, match="to_pydatetime"):
        encode_key(pandas.Timestamp("2024-01-01"))


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(),
    st.datetimes(
        datetime(2, 1, 1),
        datetime(9998, 1, 1),
        timezones=st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    ),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
)
keys = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(lambda values: Row(*values)),
        st.dictionaries(st.text(), inner, max_size=4).map(lambda fields: Row.of(tuple(fields), fields.values())),
    ),
    max_leaves=10,
)


@given(keys)
def test_every_key_is_decoded_to_an_equal_key_with_the_same_bytes(key):
    data = encode_key(key)
    back = decode_key(data)
    assert back == key
    assert encode_key(back) == data


@given(scalars, scalars)
def test_keys_of_one_class_are_the_same_exactly_if_they_are_equal(left, right):
    if type(left) is type(right):
        assert same(left, right) == (left == right)
    else:
        assert not same(left, right)


def test_the_bytes_of_a_key_do_not_depend_on_the_hash_seed():
    program = (
        "import sys, datetime, decimal, uuid\n"
        "from datetime import *; from decimal import Decimal; from uuid import UUID\n"
        "from penstock.common import Row; from penstock.state.keys import encode_key\n"
        "assert 'numpy' not in sys.modules\n"
        "keys = ['user-1', 5, 2**70, ('a', 1.5, None), Decimal('1.50'), date(2024, 1, 1), UUID(int=5),\n"
        "        Row(id=1, name='a'), datetime(2024, 1, 1, tzinfo=timezone.utc)]\n"
        "print([encode_key(key).hex() for key in keys])\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    answers = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root, "TZ": f"UTC+{seed[0]}"}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1
    assert "a6757365722d31" in answers.pop()


def test_a_list_is_the_same_key_as_the_tuple_of_its_elements():
    assert encode_key(["a", [1, 2.5]]) == encode_key(("a", (1, 2.5)))
    assert decode_key(encode_key([1, "a"])) == (1, "a")
    assert encode_key(Row(["a"])) == encode_key(Row(("a",)))


def test_the_names_of_a_row_type_without_names_do_not_change_its_key():
    """State of ``key_type=Types.ROW(...)`` was stored before such rows had names."""
    assert encode_key(Row(f0=1, f1="a")) == encode_key(Row(1, "a"))
    assert encode_key(Row(f1=1, f0="a")) != encode_key(Row(1, "a"))
