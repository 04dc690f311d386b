"""`python -m bench.service`: 200 clients poll 50 jobs of a service, one request per second each, with limits.

Takes about two minutes. Three of the jobs are real; the others are simulated by one process that speaks the control
protocol. `--jobs 8 --clients 20 --seconds 5 --real 0` only checks that everything works; it measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.rows import Rows
from chaos.service.dispatchers import DispatcherProcess
from penstock.common.tokens import read_token
from penstock.rest.client import NotNow, RestClient, ServiceUnreachable
from penstock.rest.contract import JarRunResponseBody, MultipleJobsDetails
from penstock.rest.token_file import token_file

P99_MS = 200.0
CPU_BAR = 0.3
OLDEST_S = 5.0
"""Snapshots are pushed once per second, and answers are reused for at most one second."""
_PATIENCE_S = 180.0
_PROGRAM = Path(__file__).with_name("job.py")
_REAL = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "penstock.epoch.max-records": "1000",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--real", type=int, default=3, help="how many of the jobs are real")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long to measure")
    parser.add_argument("--warmup", type=float, default=10.0, help="seconds before the measurement")
    chosen = parser.parse_args()
    err = Console(stderr=True)
    rows = Rows(f"{chosen.clients} clients of a service with {chosen.jobs} jobs, {chosen.real} of them real", err)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work, err.status("starting the jobs") as status:
        node = DispatcherProcess({"cluster.dir": f"{work}/service", "rest.port": "0"})
        records, control = Path(work, "service", "records", "default"), Path(work, "simulated")
        with _simulated(records, control, chosen.jobs - chosen.real) as simulated, node:
            client = node.client()
            real = [_submit(client) for _ in range(chosen.real)]
            try:
                _until(lambda: _running(client) == chosen.jobs, f"{chosen.jobs} jobs run")
                status.update("measuring")
                found = _measure(node, client, [*simulated, *real], simulated, chosen)
            finally:
                _cancel(client, real)
    _show(rows, found, chosen)
    return rows.show(chosen.check)


@contextmanager
def _simulated(records: Path, control: Path, count: int) -> Iterator[list[str]]:
    """Run the simulator, and yield the ids of its jobs."""
    command = [sys.executable, "-m", "bench.service.simulator", str(records), str(control), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{' '.join(command)} ended with {process.wait()}")
            yield json.loads(line)
        finally:
            process.terminate()


def _submit(client: RestClient) -> str:
    program = client.upload(_PROGRAM)
    body = {"flinkConfiguration": _REAL}
    return str(client.post(f"/jars/{program}/run", JarRunResponseBody, body).jobid)


def _running(client: RestClient) -> int:
    return Counter(str(job.state) for job in client.get("/jobs/overview", MultipleJobsDetails).jobs)["RUNNING"]


def _cancel(client: RestClient, jobs: list[str]) -> None:
    """Cancel the real jobs, and wait for their end: they would outlive the service."""
    for job in jobs:
        client.patch(f"/jobs/{job}", dict[str, Any], mode="cancel")

    def ended() -> bool:
        try:
            states = {str(job.jid): str(job.state) for job in client.get("/jobs/overview", MultipleJobsDetails).jobs}
        except (ServiceUnreachable, NotNow):
            return False
        return all(states[job] == "CANCELED" for job in jobs)

    _until(ended, "the real jobs are cancelled")


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {_PATIENCE_S:.0f} s")
        time.sleep(0.2)


def _measure(
    node: DispatcherProcess, client: RestClient, jobs: list[str], simulated: list[str], chosen: argparse.Namespace
) -> dict[str, Any]:
    options = {
        "host": client.host,
        "port": client.port,
        "clients": chosen.clients,
        "warmup": chosen.warmup,
        "seconds": chosen.seconds,
        "jobs": ",".join(jobs),
        "simulated": ",".join(simulated),
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "bench.service.clients", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(read_token(token_file(node.settings)) + "\n")
        process.stdin.close()
        time.sleep(chosen.warmup)
        before, began = _cpu_s(node.pid), time.monotonic()
        time.sleep(chosen.seconds)
        cpu = (_cpu_s(node.pid) - before) / (time.monotonic() - began)
        lines = process.stdout.read().splitlines()
    if process.returncode or not lines:
        raise SystemExit(f"the clients ended with {process.returncode}")
    return {**json.loads(lines[-1]), "cpu": cpu}


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _show(rows: Rows, found: dict[str, Any], chosen: argparse.Namespace) -> None:
    p99, late = _p99(found["overview_ms"] + found["job_ms"]), _p99(found["late_ms"])
    for path, name in (("jobs/overview", "overview_ms"), ("jobs/:id", "job_ms")):
        took = sorted(found[name])
        rows.add(
            f"{path}, {len(took):,} answers", f"median {statistics.median(took):.1f} ms, slowest {took[-1]:.0f} ms"
        )
    rows.add("p99 of the clients' own timers, without the service", f"{late:.1f} ms late")
    rows.add("p99 of all answers", f"{p99:.1f} ms", f"≤ {P99_MS:.0f} ms", p99 <= P99_MS)
    rows.add("CPU seconds per second of the Dispatcher", f"{found['cpu']:.3f}", f"≤ {CPU_BAR}", found["cpu"] <= CPU_BAR)
    failed = found["failures"]
    rows.add("failed requests", f"{len(failed)} {failed[0] if failed else ''}".strip(), "none", not failed)
    if chosen.real < chosen.jobs:
        oldest = found["oldest_s"]
        rows.add("oldest snapshot in an answer", f"{oldest:.1f} s", f"≤ {OLDEST_S:.0f} s", oldest <= OLDEST_S)
    states = Counter(found["states"].values())
    text = ", ".join(f"{count} {state}" for state, count in states.items())
    rows.add("jobs at the end", text, f"{chosen.jobs} RUNNING", states == {"RUNNING": chosen.jobs})


if __name__ == "__main__":
    sys.exit(main())
