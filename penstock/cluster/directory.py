"""The directory of a Dispatcher on its host, which only its user can access.

address                      URL of the service, while it runs
lock                         held by the service, so that only one runs in the directory
token                        the token that requests need
dispatcher.log, audit.log    what the service did, and what its clients asked for
records/<cluster id>/        the durable records, unless high-availability.storageDir is set
checkpoints/, savepoints/    of jobs that do not set their own directories, unless high-availability.storageDir is set
uploads/                     incomplete uploads
control/                     sockets of the JobManagers on this host
jobs/<id>/<attempt>/         one attempt: its order, its logs, the unpacked program
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.records import checked_id
from penstock.common.local_paths import local_path
from penstock.common.options import store_options
from penstock.common.options.service import CLUSTER_DIRECTORY, HA_CLUSTER_ID, HA_STORAGE
from penstock.common.private_directory import NotPrivate, opened_private
from penstock.common.tokens import state_directory
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage


class UnusableClusterDirectory(PenstockError):
    """Other users can change the directory of the Dispatcher, and so run code as its user.

    Operator action: remove the write permission of other users, or set `cluster.dir` to a private directory.
    """

    retryable = False


class ClusterDirectory:
    """Paths below `cluster.dir`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def configured(settings: Mapping[str, str]) -> ClusterDirectory:
        """Return the directory that the settings name, or the default one. Creates nothing."""
        given = CLUSTER_DIRECTORY.read(settings)
        if given:
            return ClusterDirectory(Path(local_path(CLUSTER_DIRECTORY.key, given)))
        return ClusterDirectory(state_directory() / "cluster")

    def create(self) -> None:
        """Create the directory for this user only. Raises UnusableClusterDirectory if other users can change it."""
        try:
            with opened_private(str(self.root), create=True, tighten=True):
                pass
        except NotPrivate as error:
            raise UnusableClusterDirectory(
                f"The directory of the cluster, {self.root}, {error}.",
                fix=f"Set {CLUSTER_DIRECTORY.key} to a directory that only you can access.",
            ) from None
        for folder in (self.control, self.jobs):
            folder.mkdir(mode=0o700, exist_ok=True)

    @property
    def address(self) -> Path:
        return self.root / "address"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def log(self) -> Path:
        return self.root / "dispatcher.log"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.log"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def attempt(self, job_id: str, attempt: int) -> Path:
        return self.jobs / checked_id(job_id) / str(attempt)

    def shared(self, settings: Mapping[str, str], name: str) -> str:
        """Return where data of jobs lie that every Dispatcher of the cluster must find in the same place."""
        location = HA_STORAGE.read(settings)
        return f"{location}/{HA_CLUSTER_ID.read(settings)}/{name}" if location else (self.root / name).as_uri()

    def storage(self, settings: Mapping[str, str]) -> SharedStorage:
        """Return the storage of the cluster's records."""
        return cluster_storage(HA_STORAGE.read(settings) or str(self.root / "records"), settings)


def cluster_storage(location: str, settings: Mapping[str, str]) -> SharedStorage:
    """Return the storage of a cluster's records below a directory or URI."""
    if "://" in location and not location.startswith("file://"):
        storage: SharedStorage = ObjectStorage(location, store_options(settings))
    else:
        storage = LocalStorage(local_path(HA_STORAGE.key, location))
    return storage.below(HA_CLUSTER_ID.read(settings))
