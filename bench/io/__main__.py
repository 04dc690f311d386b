"""`python -m bench.io`: run one job with a discarding, a file and a PostgreSQL sink, and compare with a plain COPY.

Takes about four minutes. It starts its own PostgreSQL server, from a wheel, with fsync. All sinks run in turn in one
Spark session and are compared with runs a few seconds earlier, because the speed of a shared machine varies.
`--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from rich.console import Console

from bench.io.job import COLUMNS, run
from bench.rows import Rows
from bench.settings import both_ways_conf, session
from bench.workload import LARGE_EPOCH, Workload, write_input
from chaos.servers.postgres import PostgresServer

SINKS = ("discarding", "files", "postgres")
ROUNDS = 7
"""Each sink runs once per round. A ratio is the median over all rounds."""
FILES_BAR = 0.8
POSTGRES_BAR = 2.0
_CHUNK = 1 << 16


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.io", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of records")
    chosen = parser.parse_args()
    workload = Workload(keys=100_000, records=int(LARGE_EPOCH * chosen.scale), warmup=2, measured=4)
    err = Console(stderr=True)
    rows = Rows(f"Sinks, epochs of {workload.records:,} records of {workload.keys:,} keys", err)
    server = PostgresServer(fsync=True).start()
    took: dict[str, list[float]] = {name: [] for name in (*SINKS, "copy")}
    try:
        with err.status("") as status, tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            inputs = Path(directory) / "input"
            write_input(workload, inputs)
            spark = session(both_ways_conf(Path(directory)))
            for number in range(ROUNDS):
                status.update(f"round {number + 1} of {ROUNDS}")
                for sink in SINKS:
                    _new_table(server)
                    work = Path(directory) / "work"
                    took[sink].append(_faster(run(spark, sink, inputs, work, workload.warmup, server.conninfo())))
                    shutil.rmtree(work)
                took["copy"].append(_faster(_copy(server, workload)))
                err.log(", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in took.items()))
            spark.stop()
    finally:
        server.close()
    for name, seconds in took.items():
        best, middle = min(seconds), statistics.median(seconds)
        rows.add(f"{name}, per epoch", f"{best:.2f} s, {workload.records / best:,.0f} records/s; median {middle:.2f} s")
    rounds = list(zip(*took.values(), strict=True))
    share = statistics.median(discarding / files for discarding, files, _, _ in rounds)
    rows.add("files: throughput relative to discarding", f"{share:.2f}", f"≥ {FILES_BAR}", share >= FILES_BAR)
    added = statistics.median((postgres - discarding) / copy for discarding, _, postgres, copy in rounds)
    rows.add("postgres: time added, in COPYs", f"{added:.2f}", f"≤ {POSTGRES_BAR}", added <= POSTGRES_BAR)
    return rows.show(chosen.check)


def _faster(seconds: list[float]) -> float:
    """Return the mean of the faster half: other load on the machine only adds time."""
    return statistics.mean(sorted(seconds)[: len(seconds) // 2])


def _new_table(server: PostgresServer) -> None:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS counts; CREATE TABLE counts ({COLUMNS})".encode())
        # Otherwise the next run waits for this run's writes.
        connection.execute("CHECKPOINT")


def _copy(server: PostgresServer, workload: Workload) -> list[float]:
    """Copy the rows that the job wrote, one epoch at a time, from preformatted text. Return the seconds per epoch."""
    with psycopg.connect(server.conninfo(), autocommit=True) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY counts TO STDOUT") as rows:
            lines = b"".join(rows).splitlines(keepends=True)
        expected = workload.records * workload.epochs
        assert len(lines) == expected, f"the table has {len(lines):,} rows instead of {expected:,}"
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
