"""A job whose checkpoints are followed in threads: its current lineage, and the leases of its clients."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.query.errors import CheckpointGone, NotServed
from penstock.query.follower import Follower, Readable, Share
from penstock.query.reads import Reads
from penstock.state.storage import MissingObject, Storage

_log = logging.getLogger(__name__)

_MAINTAIN_S = 0.5
_LINEAGE_EVERY_S = 1.0
"""How often a job whose lineage does not advance is asked for its newest lineage."""


class FollowedJob:
    """Follows one job through its lineages. Start it, and close it at the end."""

    def __init__(
        self,
        job_id: str,
        job_name: str,
        root: SharedStorage,
        retained: int,
        poll_s: float,
        share: Share | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root`: the directory with the job's lineages."""
        self.id, self.name = job_id, job_name
        self.share = share or Share()
        self._root = root
        self._retained = retained
        self._clock = clock
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(act, seconds), name=f"penstock-{name}-{job_name}", daemon=True)
            for name, act, seconds in (("follow", self.poll, poll_s), ("maintain", self.maintain, _MAINTAIN_S))
        ]
        self._lineage = ""
        self._asked = -_LINEAGE_EVERY_S
        self._follower: Follower | None = None
        self._reads: Reads | None = None
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[Follower, int, float]] = {}

    def start(self) -> None:
        """Follow in threads."""
        for thread in self._threads:
            thread.start()

    def poll(self) -> None:
        """Make new checkpoints readable."""
        follower = self._follower
        if follower is not None and follower.poll():
            return
        now = self._clock()
        if now - self._asked >= _LINEAGE_EVERY_S:
            self._asked = now
            self._find_lineage()

    def maintain(self) -> None:
        """Renew the pin of the server, and end leases that have run out."""
        self._expire()
        if self._follower is not None:
            self._follower.renew_pin()

    def _find_lineage(self) -> None:
        """Follow the newest lineage, once it has a checkpoint. Until then, the former one answers."""
        try:
            lineage = Lineages(self._root).newest()
        except MissingObject:
            return
        if lineage is None or lineage == self._lineage:
            return
        follower = Follower(self._storage_of(lineage), self._retained, self.share, self._clock)
        if follower.poll():
            former, self._lineage = self._follower, lineage
            self._reads = Reads(follower)
            self._follower = follower
            if former is not None:
                former.close()

    def _storage_of(self, lineage: str) -> Storage:
        return self._root.below(lineage)

    def _repeat(self, act: Callable[[], None], seconds: float) -> None:
        failed = False
        while not self._stopping.wait(seconds):
            try:
                act()
                failed = False
            except Exception:
                # The storage can be unreachable for a while, and the last checkpoints stay readable.
                if not failed:
                    _log.exception("Cannot read the checkpoints of job '%s'; trying again.", self.name)
                failed = True

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        if self._follower is not None:
            self._follower.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> str:
        """The lineage that answers."""
        return self._lineage

    def reading(self) -> tuple[Follower, Reads]:
        """Return the current follower and its reads. Raises NotServed."""
        follower, reads = self._follower, self._reads
        if follower is None or reads is None:
            raise NotServed(
                f"Job '{self.name}' has no completed checkpoint in {self._root.where} yet.",
                fix="Try again in a moment.",
            )
        return follower, reads

    def hold(self, checkpoint: int | None, lease_ms: int, lease: str) -> tuple[Readable, str]:
        """Keep a checkpoint readable for some time, or renew a lease. Return it and the lease."""
        follower, _ = self.reading()
        until = self._clock() + lease_ms / 1000
        with self._lock:
            if lease:
                held = self._leases.get(lease)
                if held is None:
                    raise CheckpointGone("The pin of this checkpoint has ended.", fix="Pin a checkpoint again.")
                follower, number, _ = held
                self._leases[lease] = follower, number, until
                return follower.at(number), lease
            readable = follower.keep(checkpoint)
            lease = secrets.token_hex(8)
            self._leases[lease] = follower, readable.version.id, until
            return readable, lease

    def release(self, lease: str) -> None:
        """End a lease."""
        with self._lock:
            held = self._leases.pop(lease, None)
        if held is not None:
            held[0].release(held[1])

    def _expire(self) -> None:
        now = self._clock()
        for lease, (_, _, until) in list(self._leases.items()):
            if until < now:
                self.release(lease)
