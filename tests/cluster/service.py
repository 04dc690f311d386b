"""Runs a Dispatcher and its REST interface in a thread of the test process, and jobs with known output on it."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rest_requests import RestRequests

from penstock.cluster.dispatcher import Dispatcher
from penstock.cluster.gateway import RunRequest
from penstock.cluster.processes import _all_processes, kill_tree, remains
from penstock.cluster.records import Claim, JobView
from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.assembly import rest_server

_T = TypeVar("_T")
DEADLINE_S = 150.0

SUMS = """
import os, sys, time
from penstock.common import Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

out, records, os.environ["PENSTOCK_CRASH"] = sys.argv[1], int(sys.argv[2]), sys.argv[3]
gate = sys.argv[4] if len(sys.argv) > 4 else ""

def passed(n):
    while gate and n == records and not os.path.exists(gate):
        time.sleep(0.05)
    return n

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
policy = RollingPolicy.on_checkpoint_rolling_policy()
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).with_rolling_policy(policy).build()
numbers = env.from_sequence(1, records).uid("numbers").map(passed).uid("gate")
sums = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).uid("sum")
sums.map(str).uid("text").sink_to(sink).uid("out")
env.execute("sums")
"""
"""The arguments: the folder of the output, how many records, crash points, and the file that the last record awaits."""
PER_EPOCH = 20


def expected_sums(records: int) -> Counter[str]:
    """Return the output of `SUMS`: the sum of each key so far, for each record."""
    sums: Counter[int] = Counter()
    lines: Counter[str] = Counter()
    for number in range(1, records + 1):
        sums[number % 7] += number
        lines[str(sums[number % 7])] += 1
    return lines


def output_of(folder: Path) -> Counter[str]:
    """Return the lines of the visible files. Nothing in a hidden folder is committed."""
    lines: Counter[str] = Counter()
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            lines.update(path.read_text().splitlines())
    return lines


def wait_for(condition: Callable[[], _T], what: str, timeout_s: float = DEADLINE_S) -> _T:
    """Wait until the condition returns something true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)
    return found


class Service:
    """Call from the test's thread. `close` leaves jobs running; leaving the context kills them."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = root
        self._settings = {
            "cluster.dir": str(root / "service"),
            "rest.port": "0",
            "rest.auth.enabled": "false",
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "penstock.epoch.max-records": str(PER_EPOCH),
            "execution.checkpointing.interval": "100 ms",
            **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()},
        }
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.start()

    def start(self) -> None:
        """Start a Dispatcher. It finds the jobs of an earlier one."""

        async def serve() -> None:
            self.dispatcher = Dispatcher(self._settings)
            self.dispatcher.directory.create()
            self._server = rest_server(self.dispatcher, self._settings, self.dispatcher.directory.root)
            await self.dispatcher.start(self._server.address)
            self._serving = asyncio.create_task(self._server.serve())

        self._do(serve())
        self.rest = RestRequests(self._server.port)
        wait_for(lambda: self._call(lambda: self.dispatcher.state().ready), "the Dispatcher is ready")

    def close(self) -> None:
        """Stop the Dispatcher. Jobs keep running."""

        async def end() -> None:
            self._server.stop()
            await self._serving
            await self.dispatcher.close()

        self._do(end())

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        for job in self.dispatcher._records.job_ids():
            # A process that has not claimed its attempt yet exits when it reads this.
            self.dispatcher._records.request_cancel(job)
            for attempt in self.view(job).attempts:
                if attempt.claim is not None:
                    kill_tree(attempt.claim)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _call(self, work: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return work()

        return self._do(call())

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, program: str, *arguments: str, name: str = "job.py", **configuration: str) -> str:
        """Submit a program and return the id of its job."""
        file = self.root / name
        file.write_text(program)
        stored = self._do(self.dispatcher.upload(name, file))
        keys = {key.replace("__", ".").replace("_", "-"): value for key, value in configuration.items()}
        request = RunRequest(program=stored.id, arguments=list(arguments), configuration=keys)
        return self._do(self.dispatcher.run(request))

    def submit_sums(self, out: Path, records: int, crashes: str = "", gate: Path | str = "") -> str:
        return self.submit(SUMS, str(out), str(records), crashes, str(gate))

    def cancel(self, job: str) -> None:
        self._do(self.dispatcher.cancel(job))

    def ask(self, job: str, request: Any) -> Any:
        return self._do(self.dispatcher.ask(job, request))

    def shown(self, job: str) -> JobSnapshot:
        return self._call(lambda: self.dispatcher.job(job))

    def view(self, job: str) -> JobView:
        return self.dispatcher._records.view(job)

    def wait_until(self, job: str, state: str, attempt: int = 0) -> JobSnapshot:
        """Wait until the job is in this state, in this attempt or a later one."""

        def reached() -> JobSnapshot | None:
            shown = self.shown(job)
            if shown.ended_ms >= 0 and shown.state != state:
                raise AssertionError(f"The job is {shown.state}: {shown.reason}\n{self.log(job)}")
            return shown if shown.state == state and shown.attempt >= attempt else None

        try:
            found = wait_for(reached, f"the job is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown(job)}\n{self.log(job)}") from None
        assert found is not None
        return found

    def claim(self, job: str, attempt: int = 1) -> Claim:
        """Wait until a process has claimed an attempt."""

        def claimed() -> Claim | None:
            attempts = self.view(job).attempts
            return attempts[attempt - 1].claim if len(attempts) >= attempt else None

        found = wait_for(claimed, f"attempt {attempt} is claimed")
        assert found is not None
        return found

    def wait_for_exit(self, claim: Claim) -> None:
        """Wait until no process of an attempt is left."""
        wait_for(lambda: not remains(claim), "the process exits")

    def log(self, job: str) -> str:
        logs = self._do(self.dispatcher.logs(job))
        return "\n".join(f"--- {log.name}\n{log.path.read_text()}" for log in logs)


def jvm_of(claim: Claim) -> int:
    """Return the process id of a JobManager's JVM."""

    def found() -> int:
        for pid, stat in _all_processes().items():
            if stat.session == claim.pid and Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid
        return 0

    return wait_for(found, "the JVM runs")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def crash(folder: Path, *points: str) -> tuple[str, list[Path]]:
    """Return plans that kill the driver once at each `point:epoch`, and the files that exist afterwards."""
    markers = [folder / f"crashed-{point.replace(':', '-')}" for point in points]
    plans = [f"driver:{point}:{marker}" for point, marker in zip(points, markers, strict=True)]
    return ";".join(plans), markers
