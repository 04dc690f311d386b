"""With PostgreSQL, too, the rig must not pass by accident: it finds every error planted in the tables."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from chaos import oracle
from chaos.committed import committed_states
from chaos.ends import postgres as postgres_ends
from chaos.ends.postgres import check_counts, read_results
from chaos.ends.programs import build
from chaos.program import record
from chaos.servers.postgres import PostgresServer
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

TOTAL = 600


def fill(conninfo: str) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute(postgres_ends._TABLES)
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO events (number, key, at) VALUES (%s, %s, %s)", [record(number) for number in range(TOTAL)]
            )


def job(conninfo: str, lineage: Path) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, {"kind": "postgres", "address": conninfo}, 100, 0)
    return JobHarness(env, parallelism=2, backend="filesystem", storage=LocalStorage(lineage))


def verdict(conninfo: str) -> list[str]:
    wanted = oracle.expected(range(TOTAL))
    return oracle.check_output({"all": read_results(conninfo)}, wanted) + check_counts(conninfo, wanted)


@pytest.fixture(scope="module")
def finished(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the database and the lineage of a finished job."""
    conninfo = postgres_server.conninfo(postgres_server.new_database())
    lineage = tmp_path_factory.mktemp("tables") / "lineage"
    fill(conninfo)
    with job(conninfo, lineage) as running:
        running.run(100)
    return conninfo, lineage


@pytest.fixture
def spoil(finished: tuple[str, Path]) -> Any:
    """Return a function that runs a statement on the tables and returns the verdict. Undone after the test."""
    conninfo, _ = finished
    with psycopg.connect(conninfo) as kept:
        tables = {name: kept.execute(f"SELECT * FROM {name}".encode()).fetchall() for name in ("results", "counts")}

    def change(statement: str) -> list[str]:
        with psycopg.connect(conninfo) as connection:
            connection.execute(statement.encode())
        return verdict(conninfo)

    yield change
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        for name, rows in tables.items():
            cursor.execute(f"DELETE FROM {name}".encode())
            places = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f"INSERT INTO {name} VALUES ({places})".encode(), rows)


def test_a_good_run_has_no_violations_and_reading_its_state_writes_nothing(finished: tuple[str, Path]) -> None:
    conninfo, lineage = finished
    assert verdict(conninfo) == []
    states, timers = committed_states(lineage, {"kind": "postgres", "address": conninfo})
    assert oracle.check_states(states, oracle.expected(range(TOTAL)), read_results(conninfo)) == []
    assert timers == []
    assert verdict(conninfo) == []


@pytest.mark.parametrize("what", ["record", "list", "timer", "window", "first", "second"])
def test_a_lost_duplicate_or_changed_row_is_reported(spoil: Any, what: str) -> None:
    one = f"ctid = (SELECT min(ctid) FROM results WHERE what = '{what}')"
    (twice,) = spoil(f"INSERT INTO results SELECT * FROM results WHERE {one}")
    assert twice.startswith(f'duplicate: ["{what}"')
    assert spoil(f"DELETE FROM results WHERE {one}") == []
    lost, never = spoil(f"UPDATE results SET second = second + 1000000 WHERE {one}")
    assert lost.startswith(f'lost: ["{what}"')
    assert never.startswith(f'unexpected: ["{what}"')


def test_an_outdated_or_missing_count_is_reported(spoil: Any) -> None:
    (old,) = spoil("UPDATE counts SET n = n - 1 WHERE key = 3")
    assert old.startswith("counts has ")
    assert "for key 3 instead of" in old
    (missing,) = spoil("DELETE FROM counts WHERE key = 3")
    assert missing.startswith("counts has None for key 3")


def test_a_sink_that_loses_its_ledger_is_reported(postgres: str, tmp_path: Path) -> None:
    fill(postgres)
    with job(postgres, tmp_path / "lineage") as running:
        running.epoch(100)
    with psycopg.connect(postgres) as connection:
        connection.execute("DELETE FROM penstock_ledger")
    with job(postgres, tmp_path / "lineage") as running:
        running.run(100)
    assert any(wrong.startswith('duplicate: ["record"') for wrong in verdict(postgres))


def test_an_epoch_recorded_but_not_written_is_reported(postgres: str, tmp_path: Path) -> None:
    fill(postgres)
    with job(postgres, tmp_path / "lineage") as running:
        running.epoch(100)
        with psycopg.connect(postgres) as connection:
            connection.execute("UPDATE penstock_ledger SET epoch = epoch + 1 WHERE sink = 'results'")
        running.run(100)
    assert any(wrong.startswith('lost: ["record"') for wrong in verdict(postgres))
