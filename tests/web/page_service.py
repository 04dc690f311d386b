"""A service with a page in front of a fake cluster, in its own process: NiceGUI has one set of pages per process.

    python page_service.py <folder> [key=value …]

prints the login link, then reads changes from standard input, one per line.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/rest"), str(ROOT / "tests/web")]

from browsing import HOSTILE  # noqa: E402
from fake_gateway import JOB, FakeGateway, snapshot  # noqa: E402
from large_jobs import many_jobs, wide_job  # noqa: E402

from penstock.common.configuration import Configuration  # noqa: E402
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment  # noqa: E402
from penstock.datastream.state import ValueStateDescriptor  # noqa: E402
from penstock.datastream.state_serving import serve_memory  # noqa: E402
from penstock.driver.job_snapshot import (  # noqa: E402
    CheckpointSnapshot,
    ExceptionSnapshot,
    ExecutorSnapshot,
    Operation,
)
from penstock.rest.assembly import rest_server  # noqa: E402
from penstock.rest.token_file import service_token  # noqa: E402
from penstock.state.local_storage import LocalStorage  # noqa: E402
from penstock.testing import JobHarness  # noqa: E402
from penstock.web.login import login_url  # noqa: E402
from penstock.web.mount import add_page  # noqa: E402


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield value


def stored_state(folder: Path, last: str) -> tuple[str, str]:
    """Write a savepoint and later checkpoints with the counts of words, and return their locations."""
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).name("count").uid("count")
    storage = LocalStorage(folder / "checkpoints")
    with JobHarness(words, backend="filesystem", storage=storage) as job:
        job.push("river", "lake", "sea").epoch()
        saved = str(job.savepoint(folder / "savepoints"))
        job.push("river", last).epoch()
        return job.snapshot().checkpointing.storage, saved


class QueryableCount(Count):
    """Counts in a state that is queryable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", int)
        descriptor.set_queryable("seen")
        self.seen = runtime_context.get_state(descriptor)


def served_job(folder: Path) -> dict[str, str]:
    """Serve the state of a job whose checkpoints are in the memory of this process, and return its settings."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
    settings = {
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(ports[0]),
        "queryable-state.server.ports": str(ports[1]),
        "queryable-state.auth.token-file": str(folder / "query-token"),
    }
    configuration = Configuration.from_dict(settings)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    words = env.from_collection([]).uid("words").key_by(lambda word: word)
    job = JobHarness(words.process(QueryableCount()).name("count").uid("count"), backend="memory")
    job.push("river", "lake", "river").epoch()
    served = serve_memory(JOB, "words", lambda: ("lineage", job.storage), configuration)
    assert served is not None
    served.start()
    return settings


def change(gateway: FakeGateway, command: str, storage: str, saved: str) -> None:
    """Change the cluster."""
    job = snapshot(JOB)
    if command == "another savepoint":
        saved = "/savepoints/another"
    made = CheckpointSnapshot(id=2, status="COMPLETED", savepoint=True, path=saved, triggered_ms=job.taken_ms)
    history = [made, *job.checkpoints.history]
    job = msgspec.structs.replace(job, checkpoints=msgspec.structs.replace(job.checkpoints, history=history))
    job = msgspec.structs.replace(job, checkpointing=msgspec.structs.replace(job.checkpointing, storage=storage))
    if command == "hostile":
        failure = ExceptionSnapshot(name=HOSTILE, message=HOSTILE, trace=HOSTILE, at_ms=job.taken_ms)
        job = msgspec.structs.replace(job, name=HOSTILE, configuration={HOSTILE: HOSTILE}, exceptions=[failure])
    elif command == "hostile savepoint":
        made = msgspec.structs.replace(made, path=HOSTILE)
        checkpoints = msgspec.structs.replace(job.checkpoints, history=[made])
        job = msgspec.structs.replace(job, checkpoints=checkpoints)
    elif command == "restarting":
        since = {"RESTARTING": job.taken_ms}
        job = msgspec.structs.replace(job, state="RESTARTING", state_since_ms=since, restarts=2)
    elif command == "in memory":
        checkpointing = msgspec.structs.replace(job.checkpointing, storage="")
        checkpoints = msgspec.structs.replace(job.checkpoints, history=[], latest_restored=None)
        job = msgspec.structs.replace(job, checkpointing=checkpointing, checkpoints=checkpoints, savepoint="")
    elif command == "savepoint":
        gateway.result = Operation(trigger_id="1" * 32, done=True, savepoint="/savepoints/<b>one</b>")
    elif command.startswith("executor in "):
        found = ExecutorSnapshot(id="7", host=socket.gethostname(), directory=command.removeprefix("executor in "))
        job = msgspec.structs.replace(job, executors=[found])
    elif command == "plan":
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).name(HOSTILE).uid("numbers").rebalance().map(str).name("text").print()
        job = msgspec.structs.replace(job, plan=env.get_execution_plan())
    elif command.startswith("wide"):
        wide = wide_job(JOB, chains=int(command.split()[1]))
        history = [
            msgspec.structs.replace(each, path=saved) if each.savepoint else each for each in wide.checkpoints.history
        ]
        checkpoints = msgspec.structs.replace(wide.checkpoints, history=history)
        job = msgspec.structs.replace(
            wide, checkpoints=checkpoints, checkpointing=job.checkpointing, started_ms=job.started_ms
        )
    gateway.by_id = {JOB: job}
    if command.startswith("wide") and command.endswith("restarting"):
        since = {"RESTARTING": job.taken_ms - 4_000}
        gateway.by_id[JOB] = msgspec.structs.replace(job, state="RESTARTING", state_since_ms=since)
        gateway.by_id |= {each.id: each for each in many_jobs(6) if each.id != JOB}
    if command.startswith("many"):
        gateway.by_id = {each.id: each for each in many_jobs(int(command.split()[1]))}


def main() -> None:
    """Serve until standard input ends."""
    folder = Path(sys.argv[1])
    (folder / "logs").mkdir(parents=True)
    settings = {
        **{"rest.port": "0", "rest.auth.token-file": str(folder / "token"), "cluster.dir": str(folder)},
        "web.refresh-interval": "1 s",
        **dict(each.split("=") for each in sys.argv[2:]),
    }
    gateway = FakeGateway(settings, folder / "logs")
    with (folder / "logs/job-1.out").open("a") as log:
        log.write(f"{HOSTILE}\n")
    storage, saved = stored_state(folder, "delta")
    hostile_storage, hostile_saved = stored_state(folder / "hostile", HOSTILE)
    change(gateway, "", storage, saved)
    server = rest_server(gateway, settings, folder, add_page)
    server.start()
    print(login_url(server.address, service_token(settings)), flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "in memory, served":
            change(gateway, "in memory", storage, saved)
            configured = msgspec.structs.replace(gateway.by_id[JOB], configuration=served_job(folder))
            gateway.by_id[JOB] = configured
        elif command.startswith("hostile"):
            change(gateway, command, hostile_storage, hostile_saved)
        elif command != "asked":
            change(gateway, command, storage, saved)
        # What the page asked for, for the test to read.
        (folder / "asked").write_text(repr(gateway.asked))
        print("done", flush=True)
    server.stop()


if __name__ == "__main__":
    main()
