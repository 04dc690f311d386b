"""ORC files that a FileSink writes have the records, in any codec, and the same bytes each time."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pyarrow import orc

from penstock.common import Configuration, Row, Types
from penstock.common.serialization import BulkWriterFactory
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.formats.orc import OrcBulkWriters
from penstock.errors import PenstockError
from penstock.testing import JobHarness


@dataclasses.dataclass
class Order:
    customer: str
    amount: float
    items: list[int]


ORDERS = [Order("ann", 1.5, [1, 2]), Order("böb", -2.0, []), Order("", 0.0, [3])]


def written(folder: Path, factory: BulkWriterFactory, values: list[Any]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(values).sink_to(FileSink.for_bulk_format(str(folder), factory).build())
    with JobHarness(env) as job:
        job.run()


def contents(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.rglob("part-*")) for row in orc.read_table(str(file)).to_pylist()]


def properties(codec: str) -> Configuration:
    return Configuration.from_dict({"orc.compress": codec})


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZLIB", "LZ4", "zstd"])
def test_a_file_has_the_records(tmp_path: Path, codec: str) -> None:
    written(tmp_path, OrcBulkWriters.for_row_type(Order, properties(codec)), ORDERS)
    assert contents(tmp_path) == [dataclasses.asdict(order) for order in ORDERS]


def test_a_row_type_names_the_columns(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    written(tmp_path, OrcBulkWriters.for_row_type(row_type), [Row(a=1, b="x"), Row(a=2, b=None)])
    assert contents(tmp_path) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_the_same_records_have_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        written(tmp_path / name, OrcBulkWriters.for_row_type(Order), ORDERS)
    first, second = (next((tmp_path / name).rglob("part-*")).read_bytes() for name in ("first", "second"))
    assert first == second


def test_an_error_names_the_column_of_a_mismatched_value(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="column 'amount' is not of type double"):
        written(tmp_path, OrcBulkWriters.for_row_type(Order), [Order("ann", "much", [])])


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"orc\.compress is 'RAR'.*ZSTD"):
        OrcBulkWriters.for_row_type(Order, properties("RAR"))
