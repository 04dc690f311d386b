"""Types from annotations on Spark: workers know the classes of the script, and its records are never pickled."""

import subprocess
import sys
from pathlib import Path

import pytest
from job_lines import without_job_lines

pytestmark = pytest.mark.spark

PROGRAM = """
from __future__ import annotations

from dataclasses import dataclass

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


@dataclass
class Order:
    user: str
    lines: list[Line]

    def __reduce__(self):
        raise AssertionError("an Order was pickled")


@dataclass
class Line:
    price: float


def order(number: int) -> Order:
    return Order(f"u{number % 2}", [Line(0.5)])


def joined(first: Order, second: Order) -> Order:
    return Order(first.user, first.lines + second.lines)


def total(order: Order, seen: int | None) -> tuple[tuple[str, int, float], int]:
    n = (seen or 0) + 1
    return (order.user, n, sum(line.price for line in order.lines)), n


def main() -> None:
    settings = {"spark.master": "local[2]", "penstock.epoch.max-records": "4"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    orders = env.from_collection(list(range(8))).map(order).rebalance().filter(lambda order: True)
    totals = orders.key_by(lambda order: order.user).reduce(joined).key_by(lambda order: order.user)
    with totals.map_with_state(total).execute_and_collect() as results:
        print(sorted(results))


main()
"""


def test_classes_of_the_script_are_typed_from_their_annotations(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    expected = [(user, n, n / 2) for user in ("u0", "u1") for n in (1, 2, 3, 4)]
    assert (done.stdout, without_job_lines(done.stderr)) == (f"{expected}\n", "")
