"""PostgreSQL as source and sink: a table that concurrent transactions append to, and two tables of results."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg

from chaos.ends.feeder import Away, Lane
from chaos.ends.served import ServedEnds
from chaos.oracle import Expected, Output
from chaos.program import line, record
from chaos.servers.postgres import PostgresServer

LANES = 4
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number bigint NOT NULL UNIQUE,
    key int NOT NULL,
    at bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS results (what text, key int, second bigint, third text, tag text);
CREATE TABLE IF NOT EXISTS counts (key int PRIMARY KEY, n bigint)
"""
_HOLD_MS = 60
"""Maximum time that transactions stay open, so that they commit in a different order than they began."""
_GIVEN_UP = 0.1
"""Fraction of transactions that are rolled back and repeated, which leaves gaps in the ids."""
_CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {clients}"
_CLIENTS = "backend_type = 'client backend'"


class PostgresEnds(ServedEnds):
    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._visible = 0
        # Elsewhere, because the server might run as a user without access to the work directory.
        digest = hashlib.blake2b(os.fsencode(work), digest_size=6).hexdigest()
        self.directory = Path(tempfile.gettempdir(), f"penstock-chaos-postgres-{digest}")
        begun = work / "postgres"
        if not begun.exists():
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir()
            begun.touch()
        self._server = PostgresServer(fsync=True, directory=self.directory)

    def where(self) -> dict[str, str]:
        return {"kind": "postgres", "address": self._server.conninfo()}

    def prepare(self) -> None:
        with psycopg.connect(self._server.conninfo()) as connection:
            connection.execute(_TABLES)

    def lanes(self) -> list[Lane]:
        return [Inserting(self._server.conninfo(), lane) for lane in range(LANES)]

    def look(self) -> list[str]:
        """Check that visible rows never disappear; their contents are compared at the end."""
        with closing(psycopg.connect(self._server.conninfo())) as connection:
            (visible,) = _only(connection.execute("SELECT count(*) FROM results"))
        before, self._visible = self._visible, max(visible, self._visible)
        gone = [f"results had {before} visible rows and now has {visible}"] if visible < before else []
        return [*super().look(), *gone]

    def output(self) -> dict[str, Output]:
        return {"all": read_results(self._server.conninfo())}

    def check(self, wanted: Expected) -> list[str]:
        return check_counts(self._server.conninfo(), wanted)

    def start_server(self) -> None:
        self._server.start()

    def kill_server(self) -> None:
        self._server.kill()

    def stop_server(self, dice: random.Random) -> str:
        mode = dice.choice(["immediate", "fast"])
        self._server.stop(mode)
        return f"stopped ({mode})"

    def pause_server(self) -> None:
        self._server.pause()

    def resume_server(self) -> None:
        self._server.resume()

    def cut_connections(self) -> int:
        with psycopg.connect(self._server.conninfo()) as connection:
            return int(_only(connection.execute(_CUT.format(clients=_CLIENTS)))[0])

    def end_server(self) -> None:
        with suppress(RuntimeError):
            self._server.stop("immediate")
        self._server.close()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _only(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return tuple(row)


def read_results(conninfo: str) -> Output:
    output = Output()
    with closing(psycopg.connect(conninfo)) as connection:
        for what, key, second, third, tag in connection.execute("SELECT * FROM results"):
            output.lines[line(what, key, second, json.loads(third), "")] += 1
            if what == "record":
                output.tags.setdefault(second, []).append(tag)
    return output


def check_counts(conninfo: str, wanted: Expected) -> list[str]:
    """Check the table of counts by key, whose rows are updated in place."""
    with closing(psycopg.connect(conninfo)) as connection:
        found: dict[int, int] = dict(connection.execute("SELECT key, n FROM counts").fetchall())
    held = wanted.states["first", "n"]
    return [
        f"counts has {found.get(key)} for key {key} instead of {held.get(key)}"
        for key in sorted(held.keys() | found.keys())
        if found.get(key) != held.get(key)
    ]


class Inserting:
    """A lane that writes one atomic transaction after another."""

    def __init__(self, conninfo: str, lane: int) -> None:
        self._conninfo = conninfo
        self._lane = lane
        self._connection: psycopg.Connection[Any] | None = None
        self._doubtful = False
        """Whether the last transaction might have committed although no confirmation arrived."""

    def reached(self) -> int:
        connection = self._connected()
        (last,) = _only(
            connection.execute("SELECT coalesce(max(number), -1) FROM events WHERE key %% %s = %s", [LANES, self._lane])
        )
        # An open transaction would delay readers that wait for all earlier ids.
        connection.rollback()
        return int(last) + 1

    def put(self, numbers: list[int], dice: random.Random) -> None:
        try:
            connection = self._connected()
            if self._doubtful and self._there(connection, numbers):
                self._doubtful = False
                return
            self._doubtful = False
            while dice.random() < _GIVEN_UP:
                self._insert(connection, numbers, dice)
                connection.rollback()
            self._insert(connection, numbers, dice)
            self._doubtful = True
            connection.commit()
            self._doubtful = False
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise Away from error

    def _there(self, connection: psycopg.Connection[Any], numbers: list[int]) -> bool:
        (there,) = _only(connection.execute("SELECT count(*) FROM events WHERE number = ANY(%s)", [numbers]))
        connection.rollback()
        if there not in (0, len(numbers)):
            raise AssertionError(f"the server has {there} of the {len(numbers)} rows of one transaction")
        return bool(there)

    def _insert(self, connection: psycopg.Connection[Any], numbers: list[int], dice: random.Random) -> None:
        for number in numbers:
            connection.execute("INSERT INTO events (number, key, at) VALUES (%s, %s, %s)", record(number))
            time.sleep(dice.randrange(_HOLD_MS) / len(numbers) / 1000)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self._conninfo, connect_timeout=10)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
