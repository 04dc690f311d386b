"""A driver that dies at any storage change leaves a complete savepoint or none, and a job that can be resumed."""

from itertools import count

import pytest
from dying import Died, Dying
from savepoint_jobs import sums

from penstock.savepoint.format import (
    IncompleteSavepoint,
    NotASavepoint,
    dispose_savepoint,
    list_savepoints,
    load_savepoint,
    savepoint_storage,
)
from penstock.savepoint.restoring import RecoveryClaimMode
from penstock.savepoint.saving import make_savepoint
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import StorageError
from penstock.testing import JobHarness

KEYS = range(60)
GROUPS = 4
"""Few groups mean few blocks, and few points at which a driver can die."""
SUMS = dict.fromkeys(KEYS, 1)


@pytest.fixture
def path(tmp_path):
    job = job_of(sums(), parallelism=2)
    job.push(*SUMS.items()).epoch()
    return job.stop_with_savepoint(tmp_path / "savepoints")


def job_of(stream, **options):
    return JobHarness(stream, max_parallelism=GROUPS, **options)


def sums_in(path, **options):
    with job_of(sums(), from_savepoint=str(path), **options) as job:
        return job.states("sum")


def dies_everywhere(action):
    """Call `action(n)` for n = 0, 1, … until it no longer dies, without cleaning up in between."""
    for number in count():
        try:
            action(number)
        except Died:
            yield number
            continue
        assert number > 3
        return


def test_a_death_while_making_a_savepoint_leaves_a_complete_one_or_none(tmp_path):
    directory = Dying(tmp_path / "savepoints")
    with job_of(sums(), parallelism=2, backend="filesystem") as job:
        job.push(*SUMS.items()).epoch()

        def make(left):
            directory.left = left
            try:
                with job._driver.pinned_last() as (manifest, version):
                    return make_savepoint(directory, "job", job._graph, job.storage, manifest, version)
            finally:
                directory.left = None

        complete = 0
        for died in dies_everywhere(make):
            for found in list_savepoints(directory):
                if found.metadata is None:
                    assert "is not complete" in found.problem
                else:
                    # The savepoint is published, but its maker died before returning.
                    complete += 1
                    assert sums_in(found.where) == SUMS
                dispose_savepoint(directory.below(found.name))
            assert list_savepoints(directory) == []
            job.crash()
            job.push((0, 0)).epoch()
            assert job.states("sum") == SUMS, died
        assert complete == 1
        [found] = list_savepoints(directory)
        assert sums_in(found.where) == SUMS


def test_a_job_that_dies_while_restoring_can_be_restored_again(tmp_path, path):
    storages = {}

    def restore(left):
        storage = storages[left] = Dying(tmp_path / f"checkpoints-{left}")
        storage.left = left
        job_of(sums(), parallelism=3, backend="filesystem", storage=storage, from_savepoint=path).close()

    for died in dies_everywhere(restore):
        storage = storages[died]
        storage.left = None
        with job_of(sums(), parallelism=3, backend="filesystem", storage=storage, from_savepoint=path) as job:
            assert job.states("sum") == SUMS
            job.push(*SUMS.items()).epoch()
            assert job.states("sum") == dict.fromkeys(KEYS, 2)
        # With the same savepoint the job resumes instead of starting over.
        with job_of(sums(), parallelism=2, backend="filesystem", storage=storage, from_savepoint=path) as job:
            assert job.states("sum") == dict.fromkeys(KEYS, 2)
    assert sums_in(path) == SUMS


def test_a_death_while_disposing_leaves_a_complete_savepoint_or_leftovers(tmp_path):
    for left in count():
        job = job_of(sums())
        job.push(*SUMS.items()).epoch()
        storage = Dying(job.stop_with_savepoint(tmp_path / str(left)))
        storage.left = left
        try:
            dispose_savepoint(storage)
        except Died:
            storage.left = None
            if left == 0:
                assert sums_in(storage.where) == SUMS
            else:
                with pytest.raises(IncompleteSavepoint):
                    load_savepoint(storage)
            dispose_savepoint(storage)
            assert not storage.root.exists()
            continue
        assert left >= GROUPS
        assert not storage.root.exists()
        return


class TestAClaimedSavepoint:
    def test_a_claimed_savepoint_is_removed_after_the_first_checkpoint(self, tmp_path, path, caplog):
        caplog.set_level("INFO", "penstock.savepoint")
        with job_of(sums(), from_savepoint=path, claim_mode=RecoveryClaimMode.CLAIM) as job:
            assert job.states("sum") == SUMS
            assert sums_in(path) == SUMS
            job.crash()
            assert sums_in(path) == SUMS
            assert caplog.messages == []
            job.epoch()
            with pytest.raises(NotASavepoint):
                load_savepoint(savepoint_storage(path))
            removed = f"Removed the savepoint in {path}: its job claimed it and no longer needs it."
            assert caplog.messages == [removed]
            job.crash()
            job.push((0, 5)).epoch()
            assert job._driver.last.claimed is None
            assert job.states("sum") == SUMS | {0: 6}

    def test_a_savepoint_that_replaced_the_claimed_one_is_left_alone(self, tmp_path, path):
        other = job_of(sums())
        other.push(("other", 1)).epoch()
        replacement = savepoint_storage(other.stop_with_savepoint(tmp_path))
        with job_of(sums(), from_savepoint=path, claim_mode=RecoveryClaimMode.CLAIM) as job:
            dispose_savepoint(savepoint_storage(path))
            replacement.root.rename(path)
            job.epoch()
        assert sums_in(path) == {"other": 1}

    def test_a_claimed_savepoint_is_complete_or_gone_wherever_the_job_dies(self, tmp_path):
        deaths = 0
        for left in count():
            job = job_of(sums())
            job.push(*SUMS.items()).epoch()
            claimed = Dying(job.stop_with_savepoint(tmp_path / f"savepoints-{left}"))
            storage = Dying(tmp_path / f"checkpoints-{left}", claimed._countdown)
            options = {"backend": "filesystem", "storage": storage, "from_savepoint": claimed.where}
            options["claim_mode"] = RecoveryClaimMode.CLAIM
            claimed.left = left
            try:
                with job_of(sums(), **options) as job:
                    job._driver.open_savepoint = lambda path, claimed=claimed: claimed
                    job.push(*SUMS.items()).epoch()
                assert deaths > 2 * GROUPS
                assert not claimed.root.exists()
                return
            except Died:
                deaths += 1
            claimed.left = None
            begun = bool(storage.list("manifests/"))
            if not begun or len(storage.list("manifests/")) == 1:
                assert sums_in(claimed.where) == SUMS
            with job_of(sums(), **options) as job:
                if job.states("sum") == SUMS:
                    job.push(*SUMS.items()).epoch()
                assert job.states("sum") == dict.fromkeys(KEYS, 2)
                assert not claimed.root.exists()


def test_a_failed_savepoint_leaves_nothing_behind(tmp_path):
    class Full(LocalStorage):
        def below(self, name):
            return Full(self.root / name)

        def publish(self, name, data):
            raise StorageError("the disk is full")

    with job_of(sums()) as job:
        job.push(*SUMS.items()).epoch()
        with job._driver.pinned_last() as (manifest, version), pytest.raises(StorageError, match="the disk is full"):
            make_savepoint(Full(tmp_path), "job", job._graph, job.storage, manifest, version)
        assert list(tmp_path.iterdir()) == []
        job.push(*SUMS.items()).epoch()
        assert job.states("sum") == dict.fromkeys(KEYS, 2)
