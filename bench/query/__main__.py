"""`python -m bench.query`: read the state of a running job with a million keys through the proxy, with limits.

Three processes on the same cores: the job at half a core, the state server with the proxy, and this client. Takes about
three minutes. `--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.query.job import STATE
from bench.rows import Rows, run_json
from penstock.checkpoint.lineages import Lineages
from penstock.checkpoint.manifest import manifest_name
from penstock.query import QueryableStateClient
from penstock.query.errors import QueryError
from penstock.query.flight_server import query_token
from penstock.query.launching import Launch, LaunchedServer
from penstock.state.local_storage import LocalStorage

CHANGES = 1_000
"""Records of an epoch while reads are measured."""
GETS, MANY, SCANS, EPOCHS = 20_000, 200, 5, 100
PORT = 29_069
_BACKLOG = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.query", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of keys and reads")
    parser.add_argument(
        "--backend",
        choices=("memory", "filesystem", "rocksdb"),
        default="filesystem",
        help="where the state server keeps the state; the default is that of jobs with a checkpoint directory",
    )
    chosen = parser.parse_args()
    keys = int(1_000_000 * chosen.scale)
    err = Console(stderr=True)
    rows = Rows(f"Queryable state, {keys:,} keys, through the proxy, state server with {chosen.backend}", err)
    with err.status("following") as status, tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        _following(rows, keys, chosen.scale, chosen.backend)
        status.update("loading the job")
        root = str(Path(directory) / "job")
        job = subprocess.Popen(
            [sys.executable, "-m", "bench.query.job", root, str(keys), str(CHANGES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        server: LaunchedServer | None = None
        try:
            assert job.stdout is not None
            loaded = int(job.stdout.readline())
            settings = {
                "queryable-state.proxy.ports": str(PORT),
                "queryable-state.server.ports": f"{PORT + 1}-{PORT + 9}",
                "queryable-state.auth.token-file": str(Path(directory) / "token"),
                "queryable-state.linger": "0 ms",
                "queryable-state.server.state-backend": chosen.backend,
                "state.backend.local-dir": str(Path(directory) / "server"),
            }
            query_token(settings)
            server = LaunchedServer(Launch(job_id="bench", job_name="bench", root=root, settings=settings))
            token_file = settings["queryable-state.auth.token-file"]
            with QueryableStateClient("127.0.0.1", PORT, token_file=token_file, timeout=60) as client:
                status.update("building the replicas")
                started = time.perf_counter()
                _await(client, loaded)
                rows.add("until a new server answers", f"{time.perf_counter() - started:.1f} s")
                status.update("reading")
                _reads(rows, client, keys, chosen.scale)
                _freshness(rows, client, root, max(5, int(EPOCHS * chosen.scale)))
                rows.add("private memory of the state server", f"{_private_mib(server.process.pid):,.0f} MiB")
        finally:
            job.kill()
            job.wait()
            if server is not None:
                server.end()
                server.process.wait(60)
    return rows.show(chosen.check)


def _following(rows: Rows, keys: int, scale: float, backend: str) -> None:
    command = [sys.executable, "-m", "bench.query.following"]
    found = run_json([*command, str(keys), str(max(100, int(10_000 * scale))), str(max(3, int(30 * scale))), backend])
    assert found["rebuilt"] == 1, "the replicas were built again"
    share = found["followed"] / found["replayed"]
    rows.add(
        "CPU time to follow a checkpoint of 10,000 records, in proportion to the job's replay",
        f"{share:.2f}",
        "≤ 0.50",
        share <= 0.5,
    )


def _await(client: QueryableStateClient, number: int) -> None:
    while True:
        try:
            if client.describe("bench").newest >= number:
                return
        except QueryError:
            pass
        time.sleep(0.05)


def _reads(rows: Rows, client: QueryableStateClient, keys: int, scale: float) -> None:
    rng = random.Random(2)
    took = []
    for _ in range(max(100, int(GETS * scale))):
        key = rng.randrange(keys)
        started = time.perf_counter()
        found = client.get("bench", STATE, key)
        took.append((time.perf_counter() - started) * 1000)
        assert found >= key
    p50, p99 = _at(took, 50), _at(took, 99)
    rows.add("get of one key, p50", f"{p50:.2f} ms", "≤ 2 ms", p50 <= 2)
    rows.add("get of one key, p99", f"{p99:.2f} ms", "≤ 20 ms", p99 <= 20)
    took = []
    for _ in range(max(5, int(MANY * scale))):
        wanted = [rng.randrange(keys) for _ in range(1000)]
        started = time.perf_counter()
        many = client.get_many("bench", STATE, wanted)
        took.append((time.perf_counter() - started) * 1000)
        assert many.keys() == set(wanted)
    p50 = _at(took, 50)
    rows.add("get_many of 1,000 keys, p50", f"{p50:.1f} ms", "≤ 15 ms", p50 <= 15)
    speeds = []
    for _ in range(SCANS):
        started = time.perf_counter()
        count = sum(batch.num_rows for batch in client.scan("bench", STATE))
        speeds.append(count / (time.perf_counter() - started))
        assert count == keys
    speed = statistics.median(speeds)
    rows.add("scan of all keys", f"{speed:,.0f} rows/s", "≥ 500,000 rows/s", speed >= 500_000)


def _freshness(rows: Rows, client: QueryableStateClient, root: str, epochs: int) -> None:
    lineages = Lineages(LocalStorage(root))
    lineage = lineages.newest()
    assert lineage is not None
    manifests = Path(root) / lineage
    since = client.describe("bench").newest
    late = []
    for changes in client.subscribe("bench", STATE, since=since, until=since + _BACKLOG + epochs):
        assert not changes.reset
        if changes.checkpoint <= since + _BACKLOG:
            # The server fell behind during the scans.
            continue
        published = (manifests / manifest_name(changes.checkpoint)).stat().st_mtime
        late.append((time.time() - published) * 1000)
    p95 = _at(late, 95)
    rows.add(
        "from the publication of a checkpoint to its changes in a client, p95", f"{p95:.0f} ms", "≤ 300 ms", p95 <= 300
    )


def _private_mib(pid: int) -> float:
    """Return the memory of a process without the files that it maps, which the system can take back."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def _at(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


if __name__ == "__main__":
    sys.exit(main())
