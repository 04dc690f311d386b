"""Checkpoints and savepoints from before format 4, in which blocks did not follow the parallelism, at any parallelism.

`record_former_blocks.py` recorded them. Of 64 key groups, the 16 blocks were those of today; of 100, they were runs of
seven.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from record_former_blocks import PER_EPOCH, RECORDS
from rescaled_job import job, oracle

from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.tables import Checkpoint, Savepoint
from penstock.tables.snapshot import Snapshot
from penstock.testing import JobHarness

DATA = Path(__file__).parents[1] / "data" / "former_blocks"
LATER = [(number * 7 % 50, 2, 10 * (len(RECORDS) + number)) for number in range(90)]

params: Any = pytest.mark.parametrize("most", [64, 100])


@pytest.fixture
def recorded(tmp_path: Path, most: int) -> Path:
    return Path(shutil.copytree(DATA / str(most), tmp_path / "recorded"))


def opened(recorded: Path, kind: str, most: int, parallelism: int, backend: str = "filesystem") -> JobHarness:
    options: dict[str, Any] = {"backend": backend, "settings": Settings(base_bytes=0, retained=1, asynchronous=False)}
    if kind == "savepoint":
        return job(None, parallelism, most, from_savepoint=str(recorded / "savepoint"), **options)
    return job(LocalStorage(recorded / "checkpoint"), parallelism, most, **options)


def output_before(most: int) -> list[Any]:
    """Return what the job had emitted when it was recorded."""
    with job(None, 3, most) as harness:
        for start in range(0, len(RECORDS), PER_EPOCH):
            harness.push(*RECORDS[start : start + PER_EPOCH]).epoch()
        return list(harness.output)


@params
@pytest.mark.parametrize("kind", ["checkpoint", "savepoint"])
@pytest.mark.parametrize(
    ("parallelism", "rescaled"),
    [(13, 50), *(pytest.param(*each, marks=pytest.mark.long) for each in [(64, 1), (1, 64), (3, 64)])],
)
def test_state_of_the_former_blocks_is_complete_at_any_parallelism(
    recorded: Path, kind: str, most: int, parallelism: int, rescaled: int
) -> None:
    totals: Counter[int] = Counter()
    with opened(recorded, kind, most, parallelism) as harness:
        for key, amount, _ in RECORDS:
            totals[key] += amount
        assert harness.states("total") == dict(totals)
        for start in range(0, len(LATER), 30):
            harness.push(*LATER[start : start + 30]).epoch()
            harness.rescale(rescaled if start == 0 else parallelism)
            # Everything must be in the files.
            harness.lose_replicas()
        harness.crash()
        harness.end()
        for key, amount, _ in LATER:
            totals[key] += amount
        assert harness.states("total") == dict(totals)
        assert Counter(output_before(most)) + Counter(harness.output) == oracle([*RECORDS, *LATER])


def test_blocks_that_have_not_changed_continue_with_their_bases(tmp_path: Path) -> None:
    recorded = Path(shutil.copytree(DATA / "64", tmp_path / "recorded"))
    with opened(recorded, "checkpoint", 64, 4) as harness:
        before = Checkpoint.load(recorded / "checkpoint").manifest
        harness.epoch()
        after = Checkpoint.load(recorded / "checkpoint").manifest
        assert after.id == before.id + 1
        assert after.blocks["sums"] == before.blocks["sums"]
        assert {base.name for base in after.bases["sums"].values()} == {
            base.name for base in before.bases["sums"].values()
        }


@params
def test_tables_show_the_same_state_in_former_and_present_blocks(recorded: Path, most: int, tmp_path: Path) -> None:
    def rows(snapshot: Snapshot) -> list[tuple[int, int]]:
        table = snapshot.state("sums", "total")
        found = sorted((row["key"], row["value"]) for row in table.rows())
        assert [table.get(key)[0]["value"] for key, _ in found] == [value for _, value in found]
        return found

    former = rows(Savepoint.load(recorded / "savepoint"))
    assert former == rows(Checkpoint.load(recorded / "checkpoint"))
    with opened(recorded, "savepoint", most, 64) as harness:
        harness.epoch()
        taken = Savepoint.load(harness.savepoint(tmp_path))
    assert rows(taken) == former
    assert taken.operators["sums"].block_count == 64
