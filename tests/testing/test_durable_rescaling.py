"""A rescale that was answered survives what follows, and one that failed leaves the former parallelism."""

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.rescaling import RescaleFailed
from penstock.errors import PenstockError
from penstock.testing import JobHarness


class Count(KeyedProcessFunction):
    """Emits the count of its key and its own number of subtasks. Raises once if one of these files exists."""

    def __init__(self, directory: Path) -> None:
        self.opening, self.processing = directory / "open", directory / "process"

    def open(self, runtime_context: RuntimeContext) -> None:
        raise_once(self.opening)
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: str, ctx: Any) -> Any:
        raise_once(self.processing)
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value, n, self.subtasks


def raise_once(file: Path) -> None:
    if file.exists():
        file.unlink()
        raise ValueError(f"{file.name} failed")


def job(directory: Path, strategy: str = "fixed-delay", parallelism: int = 2, **options: Any) -> JobHarness:
    config = Configuration()
    config.set_string("restart-strategy.type", strategy)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    words = env.from_collection([]).uid("words")
    counts = words.key_by(lambda word: word).process(Count(directory)).uid("count")
    return JobHarness(counts, parallelism=parallelism, **options)


def parallelism_of(harness: JobHarness) -> int:
    """Return the parallelism that `penstock list` prints."""
    return next(
        chain.parallelism for chain in harness._driver.graph.chains for each in chain.operators if each.uid == "count"
    )


class TestARescaleThatWasAnswered:
    def test_a_rescale_survives_a_failed_epoch_and_the_restart_that_follows(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            harness.rescale(5)
            (tmp_path / "process").touch()
            harness.push("a").epoch()
            assert harness.restarts == 1
            assert parallelism_of(harness) == 5
            assert harness.output == [("a", 1, 2), ("a", 2, 5)]

    @pytest.mark.parametrize("checkpoints", [0, 1])
    def test_a_rescale_survives_a_crash_before_the_next_epoch(self, tmp_path: Path, checkpoints: int) -> None:
        with job(tmp_path) as harness:
            for _ in range(checkpoints):
                harness.push("a").epoch()
            harness.rescale(5)
            harness.crash()
            assert parallelism_of(harness) == 5
            assert harness.checkpoint == checkpoints + 1

    def test_the_second_of_two_rescales_in_a_row_survives(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.rescale(5).rescale(3)
            harness.crash()
            assert parallelism_of(harness) == 3
            harness.rescale(2)
            harness.crash()
            assert parallelism_of(harness) == 2

    def test_a_rescale_to_the_present_parallelism_runs_no_epoch(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.rescale(2)
            assert harness.checkpoint == 0
            harness.rescale(5).rescale(5).rescale({"count": 5})
            harness.crash()
            harness.rescale(5)
            assert harness.checkpoint == 1

    def test_a_rescale_reads_no_record(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            harness.push("b").rescale(5)
            assert harness.output == [("a", 1, 2)]
            harness.epoch()
            assert harness.output == [("a", 1, 2), ("b", 1, 5)]

    def test_a_rescale_survives_a_restart_of_a_job_that_waits_for_its_first_record(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.rescale(5)
            (tmp_path / "process").touch()
            harness.push("a").epoch()
            assert harness.output == [("a", 1, 5)]

    def test_a_job_can_be_stopped_with_a_savepoint_right_after_a_rescale(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            harness.rescale(5)
            path = harness.stop_with_savepoint(tmp_path)
        with job(tmp_path, parallelism=3, from_savepoint=path) as restored:
            # As in Flink, a new job has the parallelism of its program.
            assert parallelism_of(restored) == 3
            restored.push("a").epoch()
            assert restored.output == [("a", 2, 3)]


class TestARescaleThatFailed:
    def test_a_failed_rescale_leaves_the_job_at_the_former_parallelism(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            (tmp_path / "open").touch()
            with pytest.raises(
                RescaleFailed, match=r"(?s)'harness' was not rescaled.* ValueError: open failed"
            ) as raised:
                harness.rescale(5)
            assert "It continues with its former parallelism if its restart strategy allows it." in str(raised.value)
            assert harness.restarts == 1
            assert parallelism_of(harness) == 2
            harness.push("a").epoch()
            assert harness.output == [("a", 1, 2), ("a", 2, 2)]
            harness.rescale(5)
            harness.push("a").epoch()
            assert harness.output[2:] == [("a", 3, 5)]

    def test_a_job_that_does_not_restart_resumes_with_the_former_parallelism(self, tmp_path: Path) -> None:
        with job(tmp_path, strategy="none") as harness:
            harness.rescale(3)
            (tmp_path / "open").touch()
            with pytest.raises(RescaleFailed):
                harness.rescale(5)
            harness.push("a").epoch()
            assert harness.output == [("a", 1, 3)]

    @pytest.mark.parametrize("point", ["level1.snapshot", "driver.collected"])
    def test_a_crash_before_the_checkpoint_undoes_a_rescale(self, tmp_path: Path, point: str) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            harness.crash_at(point)
            with pytest.raises(RescaleFailed, match=r"'harness' was not rescaled.*: the job crashed\."):
                harness.rescale(5)
            assert parallelism_of(harness) == 2

    def test_a_crash_after_the_checkpoint_does_not_undo_a_rescale(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").epoch()
            harness.crash_at("driver.published")
            harness.rescale(5)
            assert parallelism_of(harness) == 5

    def test_a_job_whose_input_has_ended_refuses_a_rescale(self, tmp_path: Path) -> None:
        with job(tmp_path) as harness:
            harness.push("a").end()
            with pytest.raises(PenstockError, match="has ended and cannot be rescaled"):
                harness.rescale(5)
            assert parallelism_of(harness) == 2
