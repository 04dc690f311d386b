"""The rig that reads queryable state: its oracle, and what it finds. Wrong answers are planted."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.query.checkpoints import Checkpoints, Place
from chaos.query.plan import KILLS, make_plan
from chaos.query.program import NAME, TALLIES, TOTALS, build, key_of, letter_of, remainder, tallies, totals
from chaos.query.reading import Reader, Subscriber, apply
from chaos.servers.ports import free_port
from penstock.checkpoint.lineages import Lineages
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.query import QueryableStateClient
from penstock.query.client_types import Change, CheckpointChanges, Read
from penstock.query.flight_server import query_token
from penstock.query.pinned import PinnedReads
from penstock.query.server import StateServer
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

ROOT = Path(__file__).parents[2]


def test_a_run_kills_all_kinds_of_processes_equally_often() -> None:
    plan = make_plan(7, 20, 3, 1)
    assert plan == make_plan(7, 20, 3, 1) != make_plan(8, 20, 3, 1)
    assert Counter(plan) == {**dict.fromkeys(KILLS, 5), "rescale": 3, "stop": 1}


@pytest.mark.parametrize("records", [0, 1, 34, 35, 36, 96, 97, 98, 1000])
def test_the_oracle_counts_as_a_loop_does(records: int) -> None:
    sums: Counter[int] = Counter()
    counts: dict[int, Counter[str]] = {}
    for number in range(records):
        sums[key_of(number)] += number
        counts.setdefault(letter_of(number), Counter())[remainder(number % 5)] += 1
    assert totals(records) == sums
    assert tallies(records) == counts


class Running:
    """The job of the rig without Spark, and a state server for it."""

    def __init__(self, directory: Path) -> None:
        self.settings = {
            "queryable-state.enable": "true",
            "queryable-state.proxy.ports": str(free_port()),
            "queryable-state.server.ports": "0",
            "queryable-state.auth.token-file": str(directory / "token"),
            "queryable-state.poll-interval": "2 ms",
        }
        query_token(self.settings)
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(self.settings))
        build(env, 70, 0)
        root = LocalStorage(directory / "checkpoints" / NAME)
        lineages = Lineages(root)
        self.harness = JobHarness(
            env, parallelism=2, backend="filesystem", storage=lineages.storage_of(lineages.current())
        )
        self.known = Checkpoints(directory / "checkpoints")
        self.epochs(3)
        self.server = StateServer(self.settings)
        self.followed = self.server.follow("id", NAME, root)
        self.server.await_checkpoint(self.followed, 3)
        self.server.start()
        self.client = QueryableStateClient(
            "127.0.0.1",
            int(self.settings["queryable-state.proxy.ports"]),
            token_file=self.settings["queryable-state.auth.token-file"],
        )
        self.reader = Reader(self.client, self.known, 5)

    def epochs(self, count: int) -> None:
        for _ in range(count):
            self.harness.epoch(70)
        self.known.look()

    def catch_up(self) -> None:
        """Run an epoch, and wait until its checkpoint can be read, and the one before."""
        self.epochs(1)
        self.server.await_checkpoint(self.followed, self.harness.checkpoint)

    def read(self, count: int = 150) -> list[str]:
        """Read at random, with a checkpoint now and then. Return what the reader finds wrong."""
        for number in range(count):
            if number % 10 == 0:
                self.epochs(1)
            assert self.reader.read()
        return self.reader.violations

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.harness.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.close()


def test_right_answers_are_accepted_and_all_kinds_of_reads_are_made(running: Running) -> None:
    assert running.read() == []
    assert running.reader.counts.keys() == {"get", "entries", "pair", "many", "scan"}


def test_a_value_of_another_checkpoint_is_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    read = QueryableStateClient.read

    def stale(self: QueryableStateClient, job: str, state: str, key: Any, **options: Any) -> Read:
        found = read(self, job, state, key, **options)
        return Read(read(self, job, state, key, checkpoint=found.checkpoint - 1).value, found.checkpoint)

    running.catch_up()
    monkeypatch.setattr(QueryableStateClient, "read", stale)
    assert any("committed" in each for each in running.read())


def test_a_client_that_goes_back_is_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    read = QueryableStateClient.read

    def back(self: QueryableStateClient, job: str, state: str, key: Any, **options: Any) -> Read:
        return read(self, job, state, key, checkpoint=self.describe(job).newest - 2)

    assert running.read(30) == []
    running.catch_up()
    monkeypatch.setattr(QueryableStateClient, "read", back)
    assert any(" after checkpoint " in each for each in running.read(30))


def test_a_pair_of_two_checkpoints_is_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    get = PinnedReads.get

    def torn(self: PinnedReads, state: str, key: Any, **options: Any) -> Any:
        if state == TOTALS:
            return get(self, state, key, **options)
        running.epochs(1)
        return self._client.get(NAME, state, key, at_least=self.checkpoint + 1)

    monkeypatch.setattr(PinnedReads, "get", torn)
    running.reader._pair()
    [found] = running.reader.violations
    assert f"of {TALLIES} is " in found


def test_a_checkpoint_that_was_never_completed_is_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.query.checkpoints._WAIT_S", 0.01)
    running.known._records.clear()
    assert running.reader.read()
    assert "which was never completed" in running.reader.violations[0]


def test_a_wrong_row_of_a_scan_is_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = QueryableStateClient.scan

    def one_lost(self: QueryableStateClient, job: str, state: str, **options: Any) -> Any:
        table = scan(self, job, state, **options).read_all()
        return table.slice(1).to_reader()

    monkeypatch.setattr(QueryableStateClient, "scan", one_lost)
    assert any(f": {TOTALS} is " in each for each in running.read())


class Scripted:
    """A client whose subscription yields prepared changes, and then ends the subscriber."""

    def __init__(self, changes: list[CheckpointChanges], end: Callable[[], None]) -> None:
        self.changes, self.end = changes, end

    def subscribe(self, *_: object, **__: object) -> Iterator[CheckpointChanges]:
        yield from self.changes
        self.end()


class Stopped:
    def __init__(self) -> None:
        self.now = False

    def is_set(self) -> bool:
        return self.now

    def wait(self, seconds: float) -> bool:
        return self.now


def subscribed(known: Checkpoints, *changes: CheckpointChanges) -> list[str]:
    stopped = Stopped()
    client: Any = Scripted([*changes], lambda: setattr(stopped, "now", True))
    subscriber = Subscriber(client, known, TOTALS)
    subscriber.run(stopped)  # type: ignore[arg-type]
    assert subscriber.checkpoints == len(changes)
    return subscriber.violations


def test_a_subscription_must_give_the_state_of_each_checkpoint_once(tmp_path: Path) -> None:
    known = Checkpoints(tmp_path)
    for number, records in ((4, 2), (5, 3), (6, 5)):
        known.note(Place("a", number), records)
    known.note(Place("b", 5), 3)
    known.note(Place("b", 6), 4)
    first = CheckpointChanges(4, True, [Change(0, 0), Change(1, 1)], "a")
    second = CheckpointChanges(5, False, [Change(2, 2)], "a")
    third = CheckpointChanges(6, False, [Change(3, 3), Change(4, 4)], "a")
    assert subscribed(known, first, second, third) == []
    reset = CheckpointChanges(6, True, [Change(key, key) for key in range(4)], "b")
    assert subscribed(known, first, second, reset) == []
    assert "came after" in subscribed(known, first, third)[0]
    assert "came after" in subscribed(known, first, second, second)[0]
    assert "but it holds" in subscribed(known, first, second._replace(changes=[]))[0]
    assert "came after" in subscribed(known, first, second._replace(lineage="b"))[0]
    back = CheckpointChanges(4, True, [Change(0, 0), Change(1, 1)], "a")
    assert "a subscriber got checkpoint 4 of a after" in subscribed(known, first, second, back)[0]


def test_changes_of_maps_are_applied_entry_by_entry() -> None:
    state: dict[Any, Any] = {"x": {"a": 1, "b": 2}, "y": {"a": 1}, "z": {"a": 1}}
    apply(state, [Change("x", None, "a"), Change("x", 3, "c"), Change("y", None, "a"), Change("z", None)])
    assert state == {"x": {"b": 2, "c": 3}}


def query(work: Path, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos.query", *words.split(), "--work", str(work)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
def test_reads_are_right_while_drivers_and_servers_are_killed_without_a_jvm(tmp_path: Path) -> None:
    done = query(tmp_path / "work", "--kills 6 --rescales 1 --stops 2 --reads 2000 --seed 3 --master harness")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 faults" in done.stdout
    assert "Every answer equals the state of the checkpoint that it names" in done.stdout
    assert not (tmp_path / "work").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_reads_are_right_while_the_processes_of_a_job_on_spark_are_killed(tmp_path: Path) -> None:
    done = query(tmp_path / "work", "--kills 4 --rescales 1 --stops 0 --reads 3000 --seed 3 --master local[2]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 faults" in done.stdout
