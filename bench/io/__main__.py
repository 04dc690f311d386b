"""`python -m bench.io`: one job with a sink that keeps nothing, with files and with PostgreSQL; and a plain COPY.

About three minutes. The server is one of its own, from a wheel, with fsync. `--scale 0.01` is a look at whether
everything works, not at figures.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from rich.console import Console

from bench.io.job import COLUMNS
from bench.result import Result
from bench.rows import Rows, run_json
from bench.workload import LARGE_EPOCH, Workload, write_input
from chaos.servers.postgres import PostgresServer

SINKS = ("discarding", "files", "postgres")
ROUNDS = 2
"""Each sink is measured so often, in turn; a figure is the mean of the faster half of all its epochs."""
FILES_BAR = 0.8
POSTGRES_BAR = 2.0
_CHUNK = 1 << 16


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.io", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar does not hold")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    chosen = parser.parse_args()
    workload = Workload(keys=100_000, records=int(LARGE_EPOCH * chosen.scale), warmup=3, measured=5)
    err = Console(stderr=True)
    rows = Rows(f"Sinks, epochs of {workload.records:,} records of {workload.keys:,} keys", err)
    server = PostgresServer(fsync=True).start()
    try:
        with err.status("") as status, tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            inputs = Path(directory) / "input"
            write_input(workload, inputs)
            seconds: dict[str, list[float]] = {sink: [] for sink in (*SINKS, "copy")}
            for number in range(ROUNDS):
                for sink in SINKS:
                    status.update(f"{sink}, round {number + 1} of {ROUNDS}")
                    _new_table(server)
                    work = Path(directory) / f"{sink}-{number}"
                    work.mkdir()
                    seconds[sink] += _run(sink, inputs, work, workload.warmup, server)
                status.update("COPY")
                seconds["copy"] += _copy(server, workload)
    finally:
        server.close()
    # What else the machine does only adds to them.
    took = {name: statistics.mean(sorted(each)[: len(each) // 2]) for name, each in seconds.items()}
    for name in (*SINKS, "copy"):
        rows.add(f"{name}, an epoch", f"{took[name]:.2f} s, {workload.records / took[name]:,.0f} records/s")
    share = took["discarding"] / took["files"]
    rows.add("files: throughput of discarding", f"{share:.2f}", f"≥ {FILES_BAR}", share >= FILES_BAR)
    added = (took["postgres"] - took["discarding"]) / took["copy"]
    rows.add("postgres: time added, in COPYs", f"{added:.2f}", f"≤ {POSTGRES_BAR}", added <= POSTGRES_BAR)
    return rows.show(chosen.check)


def _new_table(server: PostgresServer) -> None:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS counts; CREATE TABLE counts ({COLUMNS})".encode())
        # Else the next one waits for what this one wrote.
        connection.execute("CHECKPOINT")


def _run(sink: str, inputs: Path, work: Path, warmup: int, server: PostgresServer) -> list[float]:
    command = [sys.executable, "-m", "bench.io.job", sink, str(inputs), str(work), str(warmup), server.conninfo()]
    return Result(**run_json(command)).seconds


def _copy(server: PostgresServer, workload: Workload) -> list[float]:
    """The rows that the job wrote, an epoch's worth at a time, as text that is there already."""
    with psycopg.connect(server.conninfo(), autocommit=True) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY counts TO STDOUT") as rows:
            lines = b"".join(rows).splitlines(keepends=True)
        expected = workload.records * workload.epochs
        assert len(lines) == expected, f"{len(lines):,} rows are in the table, and not {expected:,}"
        texts = [
            b"".join(lines[epoch * workload.records : (epoch + 1) * workload.records])
            for epoch in range(workload.epochs)
        ]
        _new_table(server)
        seconds = []
        for text in texts:
            started = time.perf_counter()
            with connection.transaction(), cursor.copy("COPY counts FROM STDIN") as rows:
                for place in range(0, len(text), _CHUNK):
                    rows.write(text[place : place + _CHUNK])
            seconds.append(time.perf_counter() - started)
    return seconds[workload.warmup :]


if __name__ == "__main__":
    sys.exit(main())
