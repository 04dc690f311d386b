"""Every job name has its own checkpoint directory, and directories of earlier versions are still found."""

from __future__ import annotations

import logging
import threading
import unicodedata
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.job_directories import (
    RECORD,
    BadJobRecord,
    UnknownOwner,
    Unnamed,
    claim,
    find_directory,
    hashed_name,
    is_plain,
    passing_storage,
    unnamed_directory,
)
from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.checkpoint_settings import state_settings
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.testing import JobHarness

SAME_TO_EARLIER_VERSIONS = ["orders/eu", "orders eu", "orders-eu", "orders:eu", " orders/eu ", "orders/eu."]
ODD = [
    "заказы",
    "платежи",
    "注文",
    "job",
    "Job",
    "",
    ".",
    "..",
    "...",
    " ",
    "a.",
    "a ",
    "a",
    "A",
    "con",
    "orders\x00eu",
    "orders\neu",
    "\ud800",
    "\udfff",
    "caf\u00e9",
    unicodedata.normalize("NFD", "caf\u00e9"),
    "x" * 300,
    "x" * 301,
    "x" * 100,
    "x" * 101,
    "é" * 300,
    "../../etc",
    hashed_name("orders/eu"),
    hashed_name("заказы"),
]


def job_storage(
    checkpoints: SharedStorage, job: str, unnamed: Unnamed = Unnamed.REFUSE, origin: str = ""
) -> SharedStorage:
    """Find a job's directory and claim it, as a starting job does."""
    storage = find_directory(checkpoints, job, unnamed, origin)
    claim(storage, job)
    return storage


class CaseInsensitive(LocalStorage):
    """A directory on a file system that treats `Orders` and `orders` as one name."""

    def below(self, name: str) -> LocalStorage:
        return LocalStorage(self.root / name.lower())


@pytest.fixture(params=["local", "memory"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStorage:
    if request.param == "local":
        return LocalStorage(tmp_path)
    return ObjectStorage(f"memory://{uuid.uuid4().hex}/checkpoints")


def of_earlier_version(checkpoints: SharedStorage, directory: str, manifest: bool = True) -> str:
    """Create a directory as earlier versions left it for a job that was killed, and return its lineage."""
    root = checkpoints.below(directory)
    lineages = Lineages(root)
    lineage = lineages.current()
    if manifest:
        lineages.storage_of(lineage).write("manifests/000000000001", b"x")
    return lineage


def test_different_names_have_different_directories(checkpoints: SharedStorage) -> None:
    names = [*SAME_TO_EARLIER_VERSIONS, *ODD]
    found = {job: job_storage(checkpoints, job).where for job in names}
    assert len(set(found.values())) == len(names)
    # And they have the same ones the next time, in any order.
    assert {job: job_storage(checkpoints, job).where for job in reversed(names)} == found


def test_names_that_differ_in_case_have_different_directories_on_case_insensitive_file_systems(tmp_path: Path) -> None:
    checkpoints = CaseInsensitive(tmp_path)
    names = ["orders", "Orders", "ORDERS", "orders/EU", "orders/eu", "A", "a"]
    found = {job: job_storage(checkpoints, job).where for job in names}
    assert len(set(found.values())) == len(names)
    assert {job: job_storage(checkpoints, job).where for job in reversed(names)} == found


@given(st.text(st.characters(exclude_categories=[]), max_size=400), st.text(max_size=400))
def test_any_two_names_have_different_directories(one: str, other: str) -> None:
    directories = {job: job if is_plain(job) else hashed_name(job) for job in (one, other)}
    assert len(set(directories.values())) == len({one, other})
    for directory in directories.values():
        assert len(directory.encode()) <= 100
        assert directory.strip(". ") == directory
        assert "/" not in directory


def test_a_plain_name_is_the_name_of_its_directory(checkpoints: SharedStorage) -> None:
    for job in ("orders", "penstock-job", "Word_Count.v2", "url-count"):
        assert job_storage(checkpoints, job).where == checkpoints.below(job).where
    assert "orders-eu" in job_storage(checkpoints, "orders/eu").where


def test_names_of_300_characters_have_a_directory(tmp_path: Path) -> None:
    for job in ("x" * 300, "é" * 300, "a b" * 100):
        storage = job_storage(LocalStorage(tmp_path), job)
        Lineages(storage).current()
        assert job_storage(LocalStorage(tmp_path), job).where == storage.where


def test_drivers_that_start_simultaneously_agree_on_directories(tmp_path: Path) -> None:
    names = ["orders", "orders", "orders/eu", "orders eu", "orders/eu", "orders-eu"] * 3
    found: list[tuple[str, str]] = []
    barrier = threading.Barrier(len(names))

    def start(job: str) -> None:
        barrier.wait()
        found.append((job, job_storage(LocalStorage(tmp_path), job).where))

    threads = [threading.Thread(target=start, args=[job]) for job in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(names)
    assert len(set(found)) == len({where for _, where in found}) == len(set(names))


class TestDirectoriesOfEarlierVersions:
    def test_a_plain_name_finds_its_directory(
        self, checkpoints: SharedStorage, caplog: pytest.LogCaptureFixture
    ) -> None:
        for job in ("orders", "Orders.v2", "x" * 200, "deadbeef-0123456789abcdef"):
            lineage = of_earlier_version(checkpoints, job)
            with caplog.at_level(logging.WARNING):
                assert Lineages(job_storage(checkpoints, job)).current() == lineage
            assert "takes over" in caplog.text
            caplog.clear()
            # From now on, the directory records its owner.
            assert Lineages(job_storage(checkpoints, job)).current() == lineage
            assert not caplog.text

    @pytest.mark.parametrize("job", ["orders/eu", "orders eu"])
    def test_a_name_that_shared_its_directory_is_refused(self, checkpoints: SharedStorage, job: str) -> None:
        of_earlier_version(checkpoints, "orders-eu")
        for _ in range(2):
            with pytest.raises(UnknownOwner) as caught:
                job_storage(checkpoints, job)
        assert checkpoints.below("orders-eu").where in str(caught.value)
        assert f"'{job}'" in str(caught.value)
        assert "penstock.checkpoint.unnamed-directory=adopt" in str(caught.value.fix)
        assert "penstock.checkpoint.unnamed-directory=ignore" in str(caught.value.fix)
        assert hashed_name(job) in str(caught.value.fix)

    @pytest.mark.parametrize("job", ["заказы", "job"])
    def test_names_without_latin_letters_shared_one_directory(self, checkpoints: SharedStorage, job: str) -> None:
        of_earlier_version(checkpoints, "job")
        with pytest.raises(UnknownOwner):
            job_storage(checkpoints, job)

    def test_an_adopted_directory_stays_with_its_job(self, checkpoints: SharedStorage) -> None:
        lineage = of_earlier_version(checkpoints, "orders-eu")
        adopted = job_storage(checkpoints, "orders/eu", Unnamed.ADOPT)
        assert Lineages(adopted).current() == lineage
        assert job_storage(checkpoints, "orders/eu").where == adopted.where
        for other in ("orders eu", "orders-eu"):
            storage = job_storage(checkpoints, other, Unnamed.ADOPT)
            assert storage.where != adopted.where
            assert Lineages(storage).unfinished() is None

    def test_an_ignored_directory_stays_available_for_its_job(self, checkpoints: SharedStorage) -> None:
        lineage = of_earlier_version(checkpoints, "orders-eu")
        own = job_storage(checkpoints, "orders eu", Unnamed.IGNORE)
        assert Lineages(own).unfinished() is None
        assert job_storage(checkpoints, "orders eu").where == own.where
        assert job_storage(checkpoints, "orders eu", Unnamed.ADOPT).where == own.where
        assert Lineages(job_storage(checkpoints, "orders/eu", Unnamed.ADOPT)).current() == lineage

    def test_a_directory_with_nothing_to_resume_needs_no_confirmation(self, checkpoints: SharedStorage) -> None:
        of_earlier_version(checkpoints, "orders-eu", manifest=False)
        assert Lineages(job_storage(checkpoints, "orders/eu")).unfinished() is None
        lineages = Lineages(checkpoints.below("orders-us"))
        lineage = lineages.current()
        lineages.storage_of(lineage).write("manifests/000000000001", b"x")
        lineages.end(lineage, last=1, retain=True)
        assert Lineages(job_storage(checkpoints, "orders/us")).unfinished() is None

    def test_a_job_that_starts_from_a_savepoint_resumes_no_other_run(self, checkpoints: SharedStorage) -> None:
        of_earlier_version(checkpoints, "orders-eu")
        storage = job_storage(checkpoints, "orders/eu", origin="0123")
        assert storage.where == checkpoints.below(hashed_name("orders/eu")).where

    def test_a_job_without_checkpoints_claims_nothing(self, checkpoints: SharedStorage) -> None:
        of_earlier_version(checkpoints, "orders-eu")
        passing_storage(checkpoints, "orders/eu")
        passing_storage(checkpoints, "orders-eu")
        with pytest.raises(UnknownOwner):
            job_storage(checkpoints, "orders/eu")


@pytest.mark.parametrize("content", [b"", b"orders", b'"payments"\n0123456789abcdef\n', b"\xff\xfe\n\n", b"7\n\n"])
def test_a_damaged_record_is_refused_instead_of_starting_from_scratch(tmp_path: Path, content: bytes) -> None:
    checkpoints = LocalStorage(tmp_path)
    for job in ("orders", "orders/eu"):
        root = job_storage(checkpoints, job).root
        (root / RECORD).write_bytes(content)
        with pytest.raises(BadJobRecord, match="damaged") as caught:
            job_storage(checkpoints, job)
        assert str(root / RECORD) in str(caught.value)


def test_a_directory_copied_for_another_name_is_refused(tmp_path: Path) -> None:
    checkpoints = LocalStorage(tmp_path)
    job_storage(checkpoints, "orders/eu").root.rename(tmp_path / hashed_name("orders/us"))
    with pytest.raises(BadJobRecord, match="orders/eu"):
        job_storage(checkpoints, "orders/us")


def test_looking_for_a_directory_writes_nothing(checkpoints: SharedStorage) -> None:
    of_earlier_version(checkpoints, "orders")
    before = checkpoints.list("")
    for job in ("orders", "payments", "orders/eu"):
        find_directory(checkpoints, job)
    assert checkpoints.list("") == before


def test_a_directory_that_another_job_has_claimed_is_refused(checkpoints: SharedStorage) -> None:
    storage = find_directory(checkpoints, "orders")
    claim(storage, "payments")
    with pytest.raises(BadJobRecord, match="payments"):
        claim(storage, "orders")


def test_the_settings_give_each_name_its_own_directory(tmp_path: Path) -> None:
    def root(job: str) -> str:
        settings = {"state.checkpoints.dir": str(tmp_path), "execution.checkpointing.interval": "1 s"}
        found = state_settings(Configuration.from_dict(settings), job)[1]
        assert found is not None
        return found.where

    assert len({root(job) for job in ["заказы", "платежи", "orders/eu", "orders eu"]}) == 4
    assert root("orders") == str(tmp_path / "orders")


def test_the_handling_of_unnamed_directories_is_configurable() -> None:
    key = "penstock.checkpoint.unnamed-directory"
    assert unnamed_directory(Configuration()) is Unnamed.REFUSE
    assert unnamed_directory(Configuration.from_dict({key: "Adopt"})) is Unnamed.ADOPT
    with pytest.raises(BadSetting, match=key):
        unnamed_directory(Configuration.from_dict({key: "yes"}))


def test_savepoints_of_jobs_with_long_names_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.testing import execution

    def named(directory: SharedStorage, job: str, *rest: object) -> str:
        return made(directory, "é" * 200 + "x" * 300, *rest)

    made = execution.make_savepoint
    monkeypatch.setattr(execution, "make_savepoint", named)
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(env.from_collection([1]).uid("numbers").key_by(lambda v: v).reduce(max).uid("max")) as job:
        job.run()
        assert len(Path(job.savepoint(tmp_path)).name) < 100
