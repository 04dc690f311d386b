"""Records sent as columns must equal the records that would have been sent as rows."""

import operator
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Row
from penstock.runtime.columns import RowBatch, plain_field
from penstock.runtime.exchange import Exchange, Hop, KeyExchange, Keying, Outlet
from penstock.runtime.failures import Blamed, Party
from penstock.runtime.rows import DATA, PICKLED, ExchangeRow, decode_buffer, route_to


class ByUser:
    def get_key(self, value: Any) -> Any:
        return value.user

    def two(self, value: Any, other: Any) -> Any:
        return value.user


def statement(row: Any) -> Any:
    return row["user"]


def remembers(row: Any) -> Any:
    try:
        return row.user.lower()
    except AttributeError:
        return row.user


def keeps(row: Any, seen: Any = None) -> Any:
    return row.user


ANOTHER = Row(user="someone")


class TestPlainField:
    @pytest.mark.parametrize(
        ("select", "field"),
        [
            (lambda row: row[0], 0),
            (lambda row: row["user"], "user"),
            (lambda row: row.user, "user"),
            (statement, "user"),
            (ByUser().get_key, "user"),
            (operator.itemgetter(1), 1),
        ],
    )
    def test_a_selector_of_a_plain_field_is_recognized(self, select: Any, field: Any) -> None:
        assert plain_field(select) == field

    @pytest.mark.parametrize(
        "select",
        [
            lambda row: row,
            lambda row: row[0][1],
            lambda row: row[:1],
            lambda row: row[True],
            lambda row: row.user.id,
            lambda row: row.user or "unknown",
            lambda row: row.user if row.n else row.other,
            lambda row: (row.user,),
            lambda row: row.get_row_kind(),
            lambda row: str(row.user),
            lambda row: ANOTHER.user,
            lambda *rows: rows[0],
            remembers,
            keeps,
            ByUser().two,
            operator.itemgetter(0, 1),
            operator.attrgetter("user"),
            len,
        ],
    )
    def test_any_other_selector_is_not_a_plain_field(self, select: Any) -> None:
        assert plain_field(select) is None


class TestFieldsOfABatch:
    BATCH = RowBatch(pa.record_batch({"user": ["a", None], "n": [1, 2], "as_dict": [3, 4]}))

    def test_a_field_has_the_values_that_a_row_would_return(self) -> None:
        assert self.BATCH.field("user") == [row["user"] for row in self.BATCH] == ["a", None]
        assert self.BATCH.field(1) == [row[1] for row in self.BATCH]

    @pytest.mark.parametrize("field", ["missing", "as_dict", 3, -1])
    def test_a_field_is_none_if_a_row_would_return_something_else_or_fail(self, field: Any) -> None:
        assert self.BATCH.field(field) is None

    def test_a_field_with_a_duplicate_name_is_none(self) -> None:
        batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
        assert RowBatch(batch).field("n") is None


def key_exchange(select: Any, out: list[ExchangeRow]) -> KeyExchange:
    hops = [Hop(target, route_to(1, target)) for target in range(3)]
    owners = [group * 3 // 128 for group in range(128)]
    outlet = Outlet(Party("source", "s"), 0, hops, PICKLED, 1024, out)
    return KeyExchange(outlet, Keying(select, None, owners, Party("key selector", "k"), plain_field(select)))


def received(out: list[ExchangeRow]) -> list[tuple[int, bytes, Any]]:
    result = []
    for row in out:
        if row.kind == DATA:
            buffer = decode_buffer(row.payload)
            assert buffer.keys is not None
            values = PICKLED.decode_many(buffer.values)
            result += [(row.target, key, value) for key, value in zip(buffer.keys, values, strict=True)]
    return sorted(result, key=lambda record: record[0])


def test_columns_reach_the_same_targets_in_the_same_order_as_rows() -> None:
    table = {"user": [f"u{n % 17}" for n in range(1000)], "n": list(range(1000)), "tags": [[n] for n in range(1000)]}
    batches = [RowBatch(batch) for batch in pa.table(table).to_batches(max_chunksize=300)]
    as_columns: list[ExchangeRow] = []
    as_rows: list[ExchangeRow] = []
    columns, rows = key_exchange(lambda row: row.user, as_columns), key_exchange(lambda row: str(row.user), as_rows)
    for batch in batches:
        columns.process_many(batch)
        rows.process_many(batch)
    sent = [exchange.close(1, False).records for exchange in (columns, rows)]
    assert sent == [1000, 1000]
    assert received(as_columns) == received(as_rows)
    assert len(as_columns) == len(batches) * 3 + 3


def test_buffered_rows_are_sent_before_columns() -> None:
    out: list[ExchangeRow] = []
    exchange = key_exchange(lambda row: row.user, out)
    exchange.process_many([Row(user="a", n=1)])
    exchange.process_many(RowBatch(pa.record_batch({"user": ["a"], "n": [2]})))
    exchange.close(1, False)
    assert [value.n for _, _, value in received(out)] == [1, 2]


def test_an_invalid_key_blames_the_selector() -> None:
    exchange: Exchange = key_exchange(lambda row: row.tags, [])
    with pytest.raises(Blamed) as raised:
        exchange.process_many(RowBatch(pa.record_batch({"tags": [{"a": "x"}]})))
    assert raised.value.party.name == "key selector"
