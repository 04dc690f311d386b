"""Tasks return to the executors that hold their replicas, also after rescales and the death of an executor."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from counted_replays import replayed
from programs import expected_counts, words

from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

ROOT = Path(__file__).parents[2]
KILLED, EPOCHS = 200, 240
MOST_LOST = 0.05
MOST_REPLAYED = 1.2


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("placement")
    parameters = {
        "directory": str(directory),
        "phases": [(0, 3), (100, 6)],
        "kill_after": KILLED,
        "epochs": EPOCHS,
    }
    program = Path(__file__).with_name("placement_job.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(parameters)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {"directory": directory, **json.loads((directory / "said.json").read_text())}


def returned(seen: list[Any]) -> tuple[int, int]:
    """Return how many tasks ran where their subtask ran in the previous epoch, and how many there were."""
    pairs = [
        (before["places"][subtask], place)
        for before, after in pairwise(seen)
        for subtask, place in after["places"].items()
    ]
    return sum(before == after for before, after in pairs), len(pairs)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
class TestAJobOnThreeExecutors:
    @pytest.mark.parametrize(("first", "last", "parallelism"), [(1, 100, 3), (101, 200, 6)])
    def test_tasks_return_to_their_executors(self, said: Any, first: int, last: int, parallelism: int) -> None:
        seen = said["seen"][first - 1 : last]
        assert {len(each["places"]) for each in seen} == {2 * parallelism}
        same, total = returned(seen)
        assert same >= (1 - MOST_LOST) * total

    @pytest.mark.parametrize(("first", "last"), [(6, 100), (106, KILLED - 1)])
    def test_executors_replay_little_more_than_what_changed(self, said: Any, first: int, last: int) -> None:
        # What an epoch changes is replayed in the next one.
        changed = sum(each["changed"] for each in said["seen"][first - 1 : last])
        applied = sum(size for number, size in replayed(said["directory"] / "notes").items() if first <= number <= last)
        assert changed > 0
        assert applied <= MOST_REPLAYED * changed

    def test_every_executor_has_the_same_number_of_subtasks(self, said: Any) -> None:
        for epoch in (50, 150, EPOCHS - 1):
            places = [*said["seen"][epoch - 1]["places"].values()]
            assert {places.count(each) for each in said["seen"][epoch - 1]["alive"]} == {len(places) // 3}

    def test_the_job_survives_the_death_of_an_executor_in_place(self, said: Any) -> None:
        assert said["restarts"] == 0
        assert len({each for epoch in said["seen"] for each in epoch["alive"]}) == 4

    def test_tasks_return_again_within_five_epochs_of_each_change(self, said: Any) -> None:
        seen = said["seen"]
        changes = [n for n in range(KILLED - 2, EPOCHS) if set(seen[n]["alive"]) != set(seen[n - 1]["alive"])]
        assert 1 <= len(changes) <= 2
        for begin, end in zip(changes, [*changes[1:], EPOCHS], strict=True):
            if begin + 5 < end - 1:
                same, total = returned(seen[begin + 5 : end])
                assert same >= (1 - MOST_LOST) * total

    def test_a_new_executor_gets_work_within_ten_epochs(self, said: Any) -> None:
        seen = said["seen"]
        (new,) = {*seen[EPOCHS - 1]["alive"]} - {*seen[0]["alive"]}
        begin = next(n for n, epoch in enumerate(seen) if new in epoch["alive"])
        works = next(n for n, epoch in enumerate(seen) if new in epoch["places"].values())
        assert works <= begin + 10

    def test_the_state_is_that_of_all_records(self, said: Any) -> None:
        storage = newest_lineage(said["directory"] / "checkpoints" / "placed")
        records = words(100 * EPOCHS, 3)
        assert last_manifest(storage).records == {"words": len(records)}
        assert read_values(storage, "count", "n", int) == expected_counts(records)
