"""Coordination without ZooKeeper, the jobs that a leader finds, and the secrets that Dispatchers share."""

from __future__ import annotations

import builtins
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dispatchers import all_found

from penstock.cluster.coordination import Coordination, NoCoordination
from penstock.cluster.credentials import BadSecretFile, read_secret, shared_secret, zookeeper_credentials
from penstock.cluster.high_availability import coordination_of
from penstock.cluster.leadership import BecomeLeader, Instruction
from penstock.cluster.records import Records, Submission, attempt_folder, new_job_id
from penstock.cluster.zookeeper import ZooKeeperCoordination
from penstock.cluster.zookeeper_client import ZooKeeperSettings
from penstock.common.setting_types import BadSetting
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import StorageError


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "storage")


@pytest.fixture
def records(storage: LocalStorage) -> Records:
    return Records(storage)


def submitted(records: Records) -> str:
    job_id = new_job_id()
    records.submit(
        Submission(
            id=job_id, name="counts", program="", file="job.py", submitted_ms=0, python="3.11.7", penstock="0.1.0"
        )
    )
    return job_id


class TestOneDispatcher:
    def test_a_single_dispatcher_leads_from_its_start_to_its_end(self, records: Records) -> None:
        instructions: list[Instruction] = []
        alone: Coordination = NoCoordination(records)
        assert not alone.leading
        alone.start("here:8081", instructions.append)
        assert alone.leading
        assert alone.leader_address() == "here:8081"
        assert instructions == [BecomeLeader(epoch=1)]
        alone.close()
        assert not alone.leading

    def test_the_pointers_of_a_single_dispatcher_are_the_records(self, records: Records) -> None:
        alone = NoCoordination(records)
        job_id = submitted(records)
        alone.add_job(job_id)
        assert alone.pointers() == {job_id: ""}
        assert alone.remove_job(job_id)
        assert alone.living_job_managers() == set()


class Pointers(NoCoordination):
    """Coordination with pointers that a test chooses."""

    def __init__(self, records: Records, pointers: Mapping[str, str]) -> None:
        super().__init__(records)
        self._pointers = pointers

    def pointers(self) -> Mapping[str, str]:
        return self._pointers


class TestFoundJobs:
    def test_sound_jobs_are_found_with_their_records(self, records: Records) -> None:
        jobs = sorted(submitted(records) for _ in range(3))
        found = all_found(Pointers(records, dict.fromkeys(jobs, "")), records)
        assert [(each.job_id, each.problem) for each in found] == [(job_id, "") for job_id in jobs]
        assert all(each.view and each.view.submission.id == each.job_id for each in found)

    def test_a_record_without_a_pointer_is_found(self, records: Records) -> None:
        job_id = submitted(records)
        [found] = all_found(Pointers(records, {}), records)
        assert (found.job_id, found.problem) == (job_id, "")

    def test_a_job_without_records_is_reported_instead_of_dropped(self, records: Records) -> None:
        sound, lost = submitted(records), new_job_id()
        found = {each.job_id: each for each in all_found(Pointers(records, {sound: "", lost: ""}), records)}
        assert found[sound].view is not None
        assert found[lost].view is None
        assert f"no job {lost}" in found[lost].problem

    @pytest.mark.parametrize(
        "damage",
        [
            lambda folder: (folder / "job").write_bytes(b""),
            lambda folder: (folder / "job").write_bytes(b'{"id": 5}'),
            lambda folder: (folder / "job").write_bytes(os.urandom(200)),
            lambda folder: (
                (folder / attempt_folder(2)).mkdir(parents=True)
                or (folder / attempt_folder(2) / "planned").write_bytes(b"{}")
            ),
            lambda folder: (folder / "job").unlink() or os.mkfifo(folder / "job"),
        ],
        ids=["empty", "another form", "garbage", "attempt missing", "a FIFO"],
    )
    def test_a_job_with_unreadable_records_is_reported_instead_of_dropped(
        self, damage: Callable[[Path], object], records: Records, storage: LocalStorage
    ) -> None:
        sound, damaged = submitted(records), submitted(records)
        damage(storage.root / "jobs" / damaged)
        found = {each.job_id: each for each in all_found(NoCoordination(records), records)}
        assert found[sound].view is not None
        assert found[damaged].view is None
        assert found[damaged].problem

    def test_a_refused_pointer_is_reported_and_its_records_are_not_read(self, records: Records) -> None:
        job_id = submitted(records)
        pointers = {job_id: "It was changed.", "../evil": "The name is not a job id."}
        found = {each.job_id: each for each in all_found(Pointers(records, pointers), records)}
        assert found[job_id].problem == "It was changed."
        assert found["../evil"].view is None

    def test_a_storage_that_cannot_be_listed_gives_no_jobs_at_all(
        self, records: Records, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(prefix: str) -> list[str]:
            raise StorageError("The disk is gone.")

        monkeypatch.setattr(storage, "list", fail)
        with pytest.raises(StorageError, match="The disk is gone"):
            all_found(Pointers(records, {new_job_id(): ""}), records)


class TestSecrets:
    def test_all_processes_get_the_same_secret(self, storage: LocalStorage) -> None:
        with ThreadPoolExecutor(8) as pool:
            secrets = set(pool.map(lambda _: shared_secret(storage, "token"), range(32)))
        assert len(secrets) == 1
        assert len(secrets.pop()) >= 32
        assert [path.name for path in storage.root.iterdir()] == ["token"]

    def test_a_secret_is_readable_by_this_user_alone(self, storage: LocalStorage) -> None:
        before = os.umask(0)
        try:
            shared_secret(storage, "token")
        finally:
            os.umask(before)
        assert stat.S_IMODE((storage.root / "token").stat().st_mode) == 0o600

    def test_an_object_store_keeps_it_too(self) -> None:
        storage = ObjectStorage(f"memory://secrets-{new_job_id()}")
        assert shared_secret(storage, "token") == shared_secret(storage, "token")

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
    def test_a_file_that_others_can_access_is_refused(self, mode: int, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("user:password")
        file.chmod(mode)
        with pytest.raises(BadSecretFile, match=f"mode {mode:o}"):
            read_secret(file)

    @pytest.mark.parametrize(
        "make",
        [
            lambda file: None,
            lambda file: file.mkdir(mode=0o700),
            lambda file: os.mkfifo(file, 0o600),
            lambda file: file.symlink_to("/etc/hostname"),
            lambda file: file.touch(mode=0o600),
        ],
        ids=["missing", "directory", "FIFO", "link", "empty"],
    )
    def test_something_that_is_not_a_file_with_a_secret_is_refused(
        self, make: Callable[[Path], object], tmp_path: Path
    ) -> None:
        make(tmp_path / "secret")
        with pytest.raises(BadSecretFile):
            read_secret(tmp_path / "secret")

    def test_credentials_come_from_the_configured_file(self, tmp_path: Path, storage: LocalStorage) -> None:
        file = tmp_path / "credentials"
        file.touch(mode=0o600)
        file.write_text("operator:pass:word\n")
        settings = {"high-availability.zookeeper.client.credentials-file": str(file)}
        assert zookeeper_credentials(settings, storage) == "operator:pass:word"
        assert not storage.root.exists()

    def test_credentials_are_created_in_the_storage(self, storage: LocalStorage) -> None:
        made = zookeeper_credentials({}, storage)
        assert made.startswith("penstock:")
        assert zookeeper_credentials({}, storage) == made

    @pytest.mark.parametrize("text", ["password", ":password", "user:", "user:two words"])
    def test_credentials_of_another_form_are_refused_and_not_shown(
        self, text: str, tmp_path: Path, storage: LocalStorage
    ) -> None:
        file = tmp_path / "credentials"
        file.touch(mode=0o600)
        file.write_text(text)
        settings = {"high-availability.zookeeper.client.credentials-file": str(file)}
        with pytest.raises(BadSecretFile, match="user:password") as error:
            zookeeper_credentials(settings, storage)
        assert "two words" not in str(error.value)


class TestSettings:
    def test_defaults_and_units(self, storage: LocalStorage) -> None:
        settings = {"high-availability.zookeeper.quorum": "zk1:2181, zk2:2181"}
        read = ZooKeeperSettings.read(settings, storage)
        assert (read.quorum, read.base, read.timeout_s) == ("zk1:2181,zk2:2181", "/penstock/default", 60.0)
        assert "penstock:" not in repr(read)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("high-availability.zookeeper.quorum", ""),
            ("high-availability.zookeeper.path.root", "penstock"),
            ("high-availability.zookeeper.path.root", "/"),
            ("high-availability.zookeeper.path.root", "/a/../b"),
            ("high-availability.cluster-id", "a/b"),
            ("high-availability.cluster-id", ".."),
            ("high-availability.cluster-id", "a b"),
        ],
    )
    def test_a_wrong_setting_is_refused_by_its_key(self, key: str, value: str, storage: LocalStorage) -> None:
        settings = {"high-availability.zookeeper.quorum": "zk1:2181", key: value}
        with pytest.raises(BadSetting, match=key):
            ZooKeeperSettings.read(settings, storage)

    def test_the_type_decides(self, storage: LocalStorage) -> None:
        assert isinstance(coordination_of({}, storage), NoCoordination)
        several = {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": str(storage.root),
            "high-availability.zookeeper.quorum": "zk1:2181",
        }
        assert isinstance(coordination_of(several, storage), ZooKeeperCoordination)

    def test_several_dispatchers_need_a_common_storage(self, storage: LocalStorage) -> None:
        settings = {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": "zk1:2181"}
        with pytest.raises(BadSetting, match=r"high-availability\.storageDir is not set"):
            coordination_of(settings, storage)

    def test_a_missing_kazoo_is_reported_with_the_extra_to_install(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = builtins.__import__

        def without(name: str, *arguments: Any, **named: Any) -> Any:
            if name.partition(".")[0] == "kazoo":
                raise ImportError(name)
            return real(name, *arguments, **named)

        monkeypatch.setattr(builtins, "__import__", without)
        settings = ZooKeeperSettings.read({"high-availability.zookeeper.quorum": "zk1:2181"}, storage)
        with pytest.raises(PenstockError, match=r"pip install 'penstock\[zookeeper\]'"):
            ZooKeeperCoordination(settings)
