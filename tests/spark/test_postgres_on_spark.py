"""PostgreSQL on Spark: planned next to the driver, read and encoded in the tasks, committed by the driver."""

from typing import Any

import psycopg
import pytest

from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark


@pytest.fixture
def db(postgres: str) -> Any:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, word text)")
        connection.execute("INSERT INTO events (word) SELECT 'word ' || n % 7 FROM generate_series(1, 100) n")
        connection.execute("CREATE TABLE counts (word text PRIMARY KEY, n int)")
        connection.execute("CREATE TABLE copies (id bigint, word text)")
        yield connection


class Died(Exception):
    pass


def test_a_table_is_counted_exactly_once_although_drivers_die(make_env: Any, db: Any, postgres: str) -> None:
    def run(die_after: int | None) -> None:
        env = make_env(parallelism=2, records=30, checkpoints=True)
        rows = env.from_source(PostgresSource(postgres, "events", "id", bounded=True, splits=2)).uid("events")
        pairs = rows.map(lambda row: (row.word, 1)).uid("pairs")
        counts = pairs.key_by(lambda pair: pair[0]).sum(1).uid("counts")
        counts.sink_to(PostgresSink(postgres, "counts", key="word")).uid("to-counts")
        rows.sink_to(PostgresSink(postgres, "copies")).uid("to-copies")

        def listen(epoch: Any) -> None:
            if epoch.number == die_after:
                raise Died

        env.add_epoch_listener(listen)
        env.execute("postgres")

    for die_after in (1, 3):
        with pytest.raises(Died):
            run(die_after)
    db.execute("INSERT INTO events (word) VALUES ('too late')")
    run(None)
    assert db.execute("SELECT id FROM copies ORDER BY id").fetchall() == [(n,) for n in range(1, 101)]
    assert dict(db.execute("SELECT word, n FROM counts")) == {f"word {n}": len(range(n or 7, 101, 7)) for n in range(7)}
    assert db.execute("SELECT count(DISTINCT lineage), count(*) FROM penstock_ledger").fetchone() == (1, 2)


def test_missing_tables_are_reported_before_a_record_is_read(make_env: Any, db: Any, postgres: str) -> None:
    env = make_env()
    source = PostgresSource(postgres, "evens", "id", bounded=True)
    env.from_source(source, source_name="events").sink_to(PostgresSink(postgres, "copies"))
    with pytest.raises(PenstockError, match=r"(?s)Source 'events' failed.*table 'evens' does not exist"):
        env.execute("no source")
    env = make_env()
    read = env.from_source(PostgresSource(postgres, "events", "id", bounded=True)).map(_never_called)
    read.sink_to(PostgresSink(postgres, "copys")).uid("out")
    with pytest.raises(PenstockError, match=r"PostgresSink \(uid 'out'\): table 'copys' does not exist"):
        env.execute("no sink")


def _never_called(row: Any) -> Any:
    raise AssertionError("a record was read")
