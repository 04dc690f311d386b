"""A job on three executors with standbys and two state servers, run as a script: an executor dies at each rescale.

An executor is killed when the rescale is asked for, in the middle of the first epoch with the new parallelism, and
after that epoch. The next rescale comes once there are three executors, and a standby follows each block again.
Meanwhile clients read the counts. The program writes where the tasks of each epoch ran, what the executors followed,
and what the clients have read.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from os import getpid
from pathlib import Path
from typing import Any

import msgspec
from placement_job import EXECUTOR, PER_EPOCH
from programs import Count, FolderSink, Sum, expected_counts, words
from standby_job import MAX_PARALLELISM, block_places, executor_id, standbys_now

from chaos.processes import Process, below
from penstock.common import Configuration
from penstock.common.job import JobCancelled
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.epochs import EpochDriver
from penstock.driver.job_observer import JobObserver
from penstock.query import QueryableStateClient
from penstock.query.errors import QueryError, UnknownJob, UnknownKey, UnknownQueryableState
from penstock.query.flight_server import query_token
from penstock.query.launching import Launch, LaunchedServer
from penstock.query.protocol import CHECKPOINT, Announcement
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject

JOB = "rescaled"
FIRST = 2
EXECUTORS = 3
RESCALES = [(6, "asked"), (3, "within"), (5, "after")]
"""The new parallelism, and when an executor is killed."""
MOST_EPOCHS = 500
EVERY = 3
"""Epochs between two looks at the replicas of the executors."""


class Dying(Count):
    """Kills the executor that runs a subtask, once, if a file tells which parallelism the job must have."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process_element(self, value: Any, ctx: Any) -> Any:
        kill_if_asked(Path(self._folder), self.parallelism, self.subtask)
        yield from super().process_element(value, ctx)

    def open(self, runtime_context: Any) -> None:
        counts = ValueStateDescriptor("n", int)
        counts.set_queryable("counts")
        self.n = runtime_context.get_state(counts)
        self.seen = runtime_context.get_metrics_group().counter("seen")
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()
        self.subtask = runtime_context.get_index_of_this_subtask()


def kill_if_asked(folder: Path, parallelism: int, subtask: int) -> None:
    """Kill the executor of this worker if the file `kill` names this parallelism. Only the last subtask does it."""
    asked = folder / "kill"
    if subtask == parallelism - 1 and asked.exists() and asked.read_text() == str(parallelism):
        try:
            asked.rename(folder / f"killed-{parallelism}")
        except FileNotFoundError:
            return
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(executor, signal.SIGKILL)
        signal.pause()


class Reads:
    """Clients that compare what they read with the records of its checkpoint, until they are stopped."""

    def __init__(self, settings: dict[str, str], records: dict[int, int]) -> None:
        """`records`: how many records the checkpoints include. They are noted a moment after their publication."""
        self._settings = settings
        self._records = records
        self._all = words(PER_EPOCH * MOST_EPOCHS, 3)
        self._known = sorted({*self._all})
        self._stopping = threading.Event()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in (self._read, self._read_pinned)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, read: Callable[[QueryableStateClient, random.Random], None]) -> None:
        port = int(self._settings["queryable-state.proxy.ports"])
        token_file = self._settings["queryable-state.auth.token-file"]
        with QueryableStateClient("127.0.0.1", port, token_file=token_file) as client:
            dice = random.Random(read.__name__)
            while not self._stopping.wait(0.02):
                try:
                    read(client, dice)
                except (UnknownKey, UnknownJob, UnknownQueryableState):
                    # The job has just started.
                    self.counts["early"] += 1
                except QueryError as error:
                    self.counts["unanswered"] += 1
                    if not error.again:
                        self.wrong.append(repr(error))
                except Exception as error:
                    self.wrong.append(repr(error))
                    raise

    def _read(self, client: QueryableStateClient, dice: random.Random) -> None:
        if dice.random() < 0.1:
            table = client.scan(JOB, "counts").read_all()
            self._compare("scan", int(table.schema.metadata[CHECKPOINT]), by_key(table))
            return
        word = dice.choice(self._known)
        value, checkpoint = client.read(JOB, "counts", word)
        self._compare("get", checkpoint, {word: value}, [word])

    def _read_pinned(self, client: QueryableStateClient, dice: random.Random) -> None:
        """Keep a checkpoint for many later ones, while executors die and files are swept."""
        with client.pinned(JOB, lease=30.0) as pinned:
            first = pinned.checkpoint
            while max(self._records, default=0) < first + 12 and not self._stopping.wait(0.1):
                some = dice.sample(self._known, 20)
                self._compare("pinned", first, pinned.get_many("counts", some), some)
            table = pinned.scan("counts").read_all()
            self._compare("pinned scan", first, by_key(table))

    def _compare(self, kind: str, checkpoint: int, found: dict[str, int], asked: list[str] | None = None) -> None:
        while checkpoint not in self._records:
            if self._stopping.wait(0.01):
                return
        counted = expected_counts(self._all[: self._records[checkpoint]])
        wanted = {word: count for word, count in counted.items() if asked is None or word in asked}
        self.counts[kind] += 1
        if found != wanted:
            self.wrong.append(f"{kind} of checkpoint {checkpoint}: {found}, not {wanted}")


def by_key(table: Any) -> dict[str, int]:
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def blocks_of_servers(root: str) -> list[int]:
    """Return how many blocks each state server has announced."""
    storage, newest = LocalStorage(root), dict[str, Announcement]()
    for name in storage.list("servers/"):
        with contextlib.suppress(MissingObject):
            each = msgspec.json.decode(storage.read(name), type=Announcement)
            newest[each.server] = max(each, newest.get(each.server, each), key=lambda each: each.beat)
    return sorted(len(each.description.blocks) for each in newest.values())


def run(directory: str, ports: list[int]) -> None:
    """Run the job, and write `said.json`. `ports`: those of the proxy and the state servers."""
    queries = {
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(ports[0]),
        "queryable-state.server.ports": ",".join(map(str, ports[1:])),
        "queryable-state.auth.token-file": f"{directory}/token",
        "queryable-state.poll-interval": "50 ms",
    }
    query_token(queries)
    configuration = Configuration.from_dict(
        {
            "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # Relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas",
            "penstock.state.standby-replicas": "1",
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": PER_EPOCH,
            **queries,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(FIRST)
    env.set_max_parallelism(MAX_PARALLELISM)
    said: dict[str, Any] = {"places": {}, "rescales": []}
    records: dict[int, int] = {}
    completed = JobObserver.completed

    def observe(self: JobObserver, driver: EpochDriver, epoch: MeasuredEpoch) -> None:
        """Note the executor of each subtask."""
        places: dict[str, str] = {}
        for chain in driver.graph.chains:
            if chain.level > 0:
                for subtask, task in epoch.collected.metrics.counted.get(chain.id, {}).items():
                    places[f"{chain.operators[0].uid}/{subtask}"] = task.place.executor
        said["places"][epoch.manifest.id] = places
        records[epoch.manifest.id] = epoch.manifest.records["words"]
        completed(self, driver, epoch)

    JobObserver.completed = observe  # type: ignore[method-assign]
    root = f"{directory}/checkpoints/{JOB}"
    waiting = list(RESCALES)
    threads: list[threading.Thread] = []

    def change(epoch: Any) -> None:
        places = said["places"][epoch.number]
        now = sum(1 for each in places if each.startswith("count/"))
        last = said["rescales"][-1] if said["rescales"] else {}
        if last.get("when") == "after" and "killed" not in last and now == last["parallelism"]:
            last |= {"killed": kill(places), "died": epoch.number}
        if (threads and threads[-1].is_alive()) or now != last.get("parallelism", FIRST) or epoch.number % EVERY:
            return
        standbys = all_standbys(living(), epoch.number, block_places(places, now))
        held = [(each.blocks, each.standby_blocks) for each in client._job.snapshot().executors]
        servers = blocks_of_servers(root)
        if standbys is None or len(held) < EXECUTORS or servers != [8, 8]:
            return
        last |= {"recovered": epoch.number, "standbys": standbys, "held": held}
        if not waiting:
            threads.append(threading.Thread(target=client.cancel))
        else:
            wanted, when = waiting.pop(0)
            asked = {"parallelism": wanted, "when": when, "asked": epoch.number, "executors": [*living()]}
            said["rescales"].append(asked)
            if when == "within":
                Path(directory, "kill").write_text(str(wanted))
            # The request waits for the end of this epoch.
            threads.append(threading.Thread(target=client.rescale, args=(wanted,)))
            if when == "asked":
                asked["killed"] = kill(places)
        threads[-1].start()

    env.add_epoch_listener(change)
    counted = env.from_collection(words(PER_EPOCH * MOST_EPOCHS, 3)).uid("words").key_by(lambda word: word)
    summed = counted.process(Dying(directory)).uid("count").key_by(lambda pair: pair[0][0]).process(Sum()).uid("sum")
    summed.sink_to(FolderSink(f"{directory}/output")).uid("sink")
    client = env.execute_async(JOB)
    launch = Launch(job_id=client._job.id, job_name=JOB, root=root, settings=queries)
    server, reads = LaunchedServer(launch), Reads(queries, records)
    try:
        with contextlib.suppress(JobCancelled):
            client.result()
    finally:
        reads.close()
        server.kill()
    for thread in threads:
        thread.join()
    facts = {"restarts": client.restarts(), "records": records, "reads": reads.counts, "wrong": reads.wrong}
    Path(directory, "said.json").write_text(json.dumps(said | facts))


def all_standbys(executors: dict[str, Process], checkpoint: int, places: dict[str, str]) -> dict[str, list[str]] | None:
    """Return which executors other than that of its subtask have each block, by block; None if one has no other."""
    found = standbys_now(executors, checkpoint, places)
    return found if all(found.values()) else None


def living() -> dict[str, Process]:
    return {executor_id(each): each for each in below(getpid()) if EXECUTOR in each.arguments()}


def kill(places: dict[str, str]) -> str:
    """Kill an executor that runs subtasks, without waiting until Spark notices it."""
    executor, victim = next(each for each in sorted(living().items()) if each[0] in places.values())
    victim.send(signal.SIGKILL)
    return executor


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
