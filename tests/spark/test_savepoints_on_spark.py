"""Savepoints of jobs on Spark: made while jobs run, and restored by changed programs."""

import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from penstock.common import RenamedFrom
from penstock.common.job import JobCancelled, JobStatus
from penstock.datastream import KeyedProcessFunction, RuntimeContext, Savepoint
from penstock.datastream.connectors import Source
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.life_cycle import Wish
from penstock.errors import PenstockError
from penstock.spark.query import EpochQuery

pytestmark = pytest.mark.spark

PER_EPOCH = 7
FILES = 60
"""More than the epochs of two runs."""


class Ids(Source):
    """Emits `a0, a1, …` without end, seven per epoch."""

    bounded = False

    def __init__(self, letter: str) -> None:
        self._letter = letter

    def start(self, parallelism: int) -> dict[str, Any]:
        return {"only": 0}

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        return {"only": positions["only"] + PER_EPOCH}

    def read(self, split: str, start: Any, end: Any) -> Any:
        return (f"{self._letter}{number}" for number in range(start, end))


def python_source(env: Any, letter: str, _: Path) -> Any:
    return env.from_source(Ids(letter), source_name=letter).uid(letter)


def folder_of(letter: str, directory: Path) -> Path:
    """Return files with the same records, one per epoch. Spark reads them in order of their times."""
    folder = directory / letter
    if not folder.exists():
        folder.mkdir(parents=True)
        for number in range(FILES):
            ids = range(number * PER_EPOCH, (number + 1) * PER_EPOCH)
            path = folder / f"{number:03d}.txt"
            path.write_text("".join(f"{letter}{each}\n" for each in ids))
            os.utime(path, (1_700_000_000 + number,) * 2)
    return folder


def file_source(env: Any, letter: str, directory: Path) -> Any:
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder_of(letter, directory)))
    source = lines.set_max_files_per_epoch(1).monitor_continuously(1).build()
    return env.from_source(source, source_name=letter).uid(letter)


def spark_s_file_stream(env: Any, letter: str, directory: Path) -> Any:
    lines = env.spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder_of(letter, directory)))
    rows = env.from_spark(lines).uid(letter)
    return rows.map(lambda row: row.value).uid(f"text of {letter}")


class Number(KeyedProcessFunction):
    """Emits each record with the number of earlier records of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        n = self.n.value() or 0
        self.n.update(n + 1)
        yield value, n


def run(
    env: Any, letters: str, epochs: int, end: Any, name: str = "numbered", source: Callable[[str], Any] | None = None
) -> tuple[dict[str, list[str]], Any]:
    """Run the program with a source for each letter, in this order, until `end(client)` after `epochs` epochs.

    Returns the records of each source in order, and the result of `end`. Each record must have the count of its key.
    """
    streams = [source(letter) if source else python_source(env, letter, Path()) for letter in letters]
    union = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    numbered = union.key_by(lambda value: value[0]).process(Number()).uid("number")
    enough = threading.Event()
    env.add_epoch_listener(lambda epoch: enough.set() if epoch.number >= epochs else None)
    results = numbered.execute_and_collect(name)
    assert enough.wait(120)
    ended = end(results._client)
    seen: dict[str, list[str]] = defaultdict(list)
    for value, n in results:
        seen[value[0]].append(value)
        assert value == f"{value[0]}{n}", "state and position belong together"
    return seen, ended


def beginning_with(path: str) -> dict[str, str]:
    return {"execution.state-recovery.path": path}


def stop(directory: Path) -> Any:
    return lambda client: client.stop_with_savepoint(False, str(directory)).result()


@pytest.mark.parametrize("source", [python_source, file_source, spark_s_file_stream])
def test_added_removed_and_reordered_sources_continue_at_their_positions(
    make_env: Any, tmp_path: Path, source: Any
) -> None:
    def run_with(letters: str, epochs: int, **settings: Any) -> Any:
        env = make_env(checkpoints=True, **settings)
        return run(env, letters, epochs, stop(tmp_path), source=lambda each: source(env, each, tmp_path / "in"))

    before, path = run_with("abc", 3, parallelism=2)
    assert set(before) == set("abc")
    changed = beginning_with(path) | {
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "state.backend": "rocksdb",
    }
    taken = Savepoint.load(path).metadata.checkpoint
    after, second = run_with("dca", taken + 3, parallelism=3, **changed)
    for letter in "ac":
        together = before[letter] + after[letter]
        assert together == [f"{letter}{number}" for number in range(len(together))]
        assert after[letter]
    assert after["d"][0] == "d0"
    assert "b" not in after
    assert second != path


def test_a_live_savepoint_is_consistent_and_the_job_continues(make_env: Any, tmp_path: Path) -> None:
    def save_and_go_on(client: Any) -> str:
        path: str = client.trigger_savepoint(str(tmp_path)).result()
        assert client.status() is JobStatus.RUNNING
        client.stop_with_savepoint(False, str(tmp_path)).result()
        return path

    before, path = run(make_env(parallelism=2, checkpoints=True), "a", 2, save_and_go_on)
    held = Savepoint.load(path).metadata
    assert 0 < held.sources["a"].records <= len(before["a"])
    restored = make_env(parallelism=2, checkpoints=True, **beginning_with(path))
    after, _ = run(restored, "a", held.checkpoint + 2, stop(tmp_path), name="again")
    assert after["a"][0] == f"a{held.sources['a'].records}"


def test_a_stopped_job_is_finished_and_a_cancelled_job_is_cancelled(make_env: Any, tmp_path: Path) -> None:
    def status_after(savepoint: Any) -> Any:
        def end(client: Any) -> JobStatus:
            savepoint(client).result()
            return client.status()

        return end

    drain = status_after(lambda client: client.stop_with_savepoint(True, str(tmp_path)))
    assert run(make_env(checkpoints=True), "a", 1, drain)[1] is JobStatus.FINISHED
    cancel = status_after(lambda client: client.cancel_with_savepoint(str(tmp_path)))
    with pytest.raises(JobCancelled):
        run(make_env(checkpoints=True), "a", 1, cancel)


def test_a_job_stopped_before_its_query_starts_ends(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = run(make_env(checkpoints=True), "a", 2, stop(tmp_path))
    started: queue.Queue[Any] = queue.Queue()
    start = EpochQuery.start

    def be_stopped_and_start(query: EpochQuery, *rest: Any) -> None:
        # The job has recovered, and the query starts next.
        life = started.get(timeout=60)._job._execution.life
        deadline = time.monotonic() + 60
        while life.wish is not Wish.STOP:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        start(query, *rest)

    monkeypatch.setattr(EpochQuery, "start", be_stopped_and_start)
    env = make_env(checkpoints=True, **beginning_with(path))
    results = python_source(env, "a", Path()).key_by(lambda value: value[0]).process(Number()).uid("number")
    client = results.execute_and_collect("again")._client
    started.put(client)
    second = client.stop_with_savepoint(False, str(tmp_path)).result()
    assert Savepoint.load(second).metadata.checkpoint == Savepoint.load(path).metadata.checkpoint
    assert client.status() is JobStatus.FINISHED


class Tallying(KeyedProcessFunction):
    """Counts per key in an object of this class."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tally = runtime_context.get_state(ValueStateDescriptor("tally", self.cls))

    def process_element(self, value: str, ctx: Any) -> Any:
        tally = self.tally.value() or self.cls(0)
        yield value, tally
        self.tally.update(replace(tally, **{fields(tally)[0].name: getattr(tally, fields(tally)[0].name) + 1}))


class Noted:
    """Touches a file when a record is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, value: Any) -> Any:
        self.path.touch()
        return value


def test_a_changed_class_of_the_program_reads_stored_values(make_env: Any, tmp_path: Path) -> None:
    noted = tmp_path / "a record was read"

    def tallied(env: Any, cls: Any, epochs: int) -> tuple[list[Any], str]:
        source = env.from_source(Ids("a")).uid("a").map(Noted(noted))
        stream = source.key_by(lambda value: value[0]).process(Tallying(cls)).uid("tally")
        enough = threading.Event()
        env.add_epoch_listener(lambda epoch: enough.set() if epoch.number >= epochs else None)
        results = stream.execute_and_collect("tallied")
        assert enough.wait(120)
        path = stop(tmp_path)(results._client)
        return list(results), path

    def before() -> Any:
        @dataclass
        class Tally:
            n: int

        return Tally

    def after() -> Any:
        @dataclass
        class Tally:
            count: Annotated[float, RenamedFrom("n")]
            tags: list[str] = field(default_factory=lambda: ["restored"])

        return Tally

    def never() -> Any:
        @dataclass
        class Tally:
            n: str

        return Tally

    given, path = tallied(make_env(checkpoints=True), before(), 2)
    taken = Savepoint.load(path).metadata.checkpoint
    now = after()
    later, _ = tallied(make_env(checkpoints=True, **beginning_with(path)), now, taken + 2)
    assert [tally.n for _, tally in given] == list(range(len(given)))
    assert [tally.count for _, tally in later] == [float(len(given) + n) for n in range(len(later))]
    assert all(tally.tags == ["restored"] for _, tally in later)
    noted.unlink()
    refused = make_env(checkpoints=True, **beginning_with(path))
    stream = refused.from_source(Ids("a")).uid("a").map(Noted(noted)).key_by(lambda value: value[0])
    with pytest.raises(PenstockError, match=r"'tally'.*\n?.*int.*str"):
        list(stream.process(Tallying(never())).uid("tally").execute_and_collect("tallied"))
    assert not noted.exists()
