"""A job whose checkpoints are followed in threads: its current lineage, and the leases of its clients."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Protocol

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.query.division import ALL_BLOCKS
from penstock.query.errors import CheckpointGone, NotServed
from penstock.query.follower import Follower, Readable
from penstock.query.local_replicas import LocalReplicas, NoLocalReplicas, memory_replica
from penstock.query.membership import Membership, Plan
from penstock.query.protocol import Description
from penstock.query.reads import Reads
from penstock.query.registry import registered
from penstock.state.engines.base import EngineError
from penstock.state.storage import MissingObject, Storage

_log = logging.getLogger(__name__)

_MAINTAIN_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
"""Before replicas that cannot be written are tried again."""
_LINEAGE_EVERY_S = 1.0
"""How often a job whose lineage does not advance is asked for its newest lineage."""


class Origin(Protocol):
    """Where the checkpoints of a job are."""

    @property
    def where(self) -> str:
        """The location, for people to read."""

    def newest(self) -> str | None:
        """Return the newest lineage."""

    def below(self, lineage: str) -> Storage:
        """Return the storage of a lineage."""


class Directory:
    """The directory of a job, with its lineages."""

    def __init__(self, root: SharedStorage) -> None:
        self._root = root

    @property
    def where(self) -> str:
        return self._root.where

    def newest(self) -> str | None:
        try:
            return Lineages(self._root).newest()
        except MissingObject:
            # Removed in this moment.
            return None

    def below(self, lineage: str) -> Storage:
        return self._root.below(lineage)


class InDriver:
    """The memory of the driver in this process, which has one lineage."""

    def __init__(self, lineage: str, storage: Storage) -> None:
        self._lineage, self._storage = lineage, storage

    @property
    def where(self) -> str:
        return self._storage.where

    def newest(self) -> str | None:
        return self._lineage

    def below(self, lineage: str) -> Storage:
        return self._storage


class FollowedJob:
    """Follows one job through its lineages. Start it, and close it at the end."""

    def __init__(
        self,
        job_id: str,
        job_name: str,
        origin: Origin,
        retained: int,
        poll_s: float,
        membership: Membership | None = None,
        heartbeat_s: tuple[float, float] = (1.0, 3.0),
        clock: Callable[[], float] = time.monotonic,
        replicas: LocalReplicas | None = None,
    ) -> None:
        """Call `start` to follow in threads.

        Args:
            job_id: The id of the job.
            job_name: Its name.
            origin: Where its checkpoints are.
            retained: Checkpoints to keep readable.
            poll_s: How often to look for a checkpoint.
            membership: The part of this server in the job; None if it has all of its state.
            heartbeat_s: The interval and the timeout of heartbeats.
            clock: A monotonic clock.
            replicas: Those of the server; None for replicas in memory.
        """
        self.id, self.name = job_id, job_name
        self.membership = membership
        self._interval_s, self._timeout_s = heartbeat_s
        self._plan = Plan(ALL_BLOCKS)
        self._beaten: float | None = None
        self._beating = threading.Lock()
        self._announced: set[int] = set()
        self._origin = origin
        self._retained = retained
        self._clock = clock
        self._replicas = replicas
        self._failure = ""
        """Why the replicas cannot be built or advanced."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(act, seconds), name=f"penstock-{name}-{job_name}", daemon=True)
            for name, act, seconds in (
                ("follow", self.poll, poll_s),
                ("maintain", self.maintain, min(_MAINTAIN_S, self._interval_s)),
                ("watch", self.watch, self._timeout_s / 10),
            )
        ]
        # Reads are refused after this process was stopped, until it has looked for newer checkpoints.
        self._awake: float | None = None
        self._stopped_at, self._looked = -1.0, 0.0
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
        """Make new checkpoints and blocks readable. Raises EngineError, NoLocalReplicas."""
        try:
            self._poll()
            self._failure = ""
        except (EngineError, NoLocalReplicas) as error:
            self._failure = str(error)
            raise

    def _poll(self) -> None:
        began = self._clock()
        if self.membership is not None and self._beaten is None:
            self.beat()
        follower = self._follower
        advanced = follower is not None and follower.poll()
        if self._looked < self._stopped_at or (not advanced and began - self._asked >= _LINEAGE_EVERY_S):
            self._asked = began
            self._find_lineage()
        if self._replicas is not None:
            self._replicas.remove_unused()
        self._looked = began

    def maintain(self) -> None:
        """Renew the pin of the server, end leases that have run out, and announce what the server has."""
        self._expire()
        follower = self._follower
        if follower is not None:
            follower.renew_pin()
        if self.membership is not None and self._beaten is not None:
            more = follower is not None and follower.blocks().keys() != self._announced
            if more or self._clock() - self._beaten >= self._interval_s:
                self.beat()

    def watch(self) -> None:
        """Notice that this process was stopped: others can have its blocks, and its last checkpoint can be old."""
        now = self._clock()
        if self._awake is not None and now - self._awake > self._timeout_s:
            self._stopped_at = now
        self._awake = now

    def beat(self) -> None:
        """Announce what this server has, and decide what it shall have."""
        if self.membership is None:
            return
        with self._beating:
            self._beaten = self._clock()
            follower = self._follower
            described = self.description()
            self._plan = self.membership.beat(described, None if follower is None else follower.oldest_held)
            self._announced = set(described.blocks)
            if follower is not None:
                follower.want(*self._plan)

    def leave(self) -> None:
        """Ask the other servers to take the blocks of this one. It answers until it is closed."""
        if self.membership is not None:
            self.membership.leaving = True
            self.beat()

    def is_needed(self) -> bool:
        """Return whether this server, which is leaving, still has blocks that another one shall have."""
        follower = self._follower
        return follower is not None and bool(follower.blocks().keys() - self._plan.wanted)

    def _find_lineage(self) -> None:
        """Follow the newest lineage, once it has a checkpoint. Until then, the former one answers."""
        lineage = self._origin.newest()
        if lineage is None or lineage == self._lineage:
            return
        make = memory_replica if self._replicas is None else self._replicas.replica
        follower = Follower(self._origin.below(lineage), self._retained, self._plan.wanted, self._clock, make)
        follower.lineage = lineage
        if follower.poll():
            former, self._lineage = self._follower, lineage
            self._reads = Reads(follower)
            self._follower = follower
            if former is not None:
                former.close()

    def _repeat(self, act: Callable[[], None], seconds: float) -> None:
        failed = False
        pause = seconds
        while not self._stopping.wait(pause):
            try:
                act()
                failed, pause = False, seconds
            except (EngineError, NoLocalReplicas) as error:
                # The disk can be full for a while. An attempt can read the complete state.
                if not failed:
                    _log.error("The replicas of job '%s' cannot be advanced; trying again. %s", self.name, error)
                failed, pause = True, min(max(2 * pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            except Exception:
                # The storage can be unreachable for a while, and the last checkpoints stay readable.
                if not failed:
                    _log.exception("Cannot read the checkpoints of job '%s'; trying again.", self.name)
                failed, pause = True, seconds

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        if self.membership is not None:
            self.membership.leave()
        if self._follower is not None:
            self._follower.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> str:
        """The lineage that answers."""
        return self._lineage

    def reading(self) -> tuple[Follower, Reads]:
        """Return the current follower and its reads. Raises NotServed."""
        awake = self._awake
        if self._looked < self._stopped_at or (awake is not None and self._clock() - awake > self._timeout_s):
            raise NotServed(
                f"The state server of job '{self.name}' was stopped for some time, and looks for newer checkpoints.",
                fix="Try again in a moment.",
            )
        follower, reads = self._follower, self._reads
        if follower is None or reads is None:
            if self._failure:
                raise NotServed(f"The state of job '{self.name}' cannot be served yet. {self._failure}")
            raise NotServed(
                f"Job '{self.name}' has no completed checkpoint in {self._origin.where} yet.",
                fix="Try again in a moment.",
            )
        return follower, reads

    def check_newest(self, seen_in: str) -> None:
        """Raise NotServed if a client has seen a lineage that is newer than the one of this server."""
        if seen_in in ("", self._lineage):
            return
        if self._origin.newest() == seen_in:
            raise NotServed(f"This server does not follow the last run of job '{self.name}' yet.", fix="Try again.")

    def description(self) -> Description:
        """Return the readable checkpoints, blocks and states. Those of a job without a checkpoint are empty."""
        follower = self._follower
        try:
            readable = None if follower is None else follower.at()
        except NotServed:
            readable = None
        if follower is None or readable is None:
            return Description(
                job_id=self.id,
                job_name=self.name,
                lineage="",
                oldest=0,
                newest=0,
                ended=False,
                timestamp=0,
                states=[],
            )
        return Description(
            job_id=self.id,
            job_name=self.name,
            lineage=follower.lineage,
            oldest=follower.oldest,
            newest=readable.version.id,
            ended=follower.ended,
            timestamp=readable.manifest.timestamp,
            states=list(registered(readable.manifest).values()),
            blocks=follower.blocks(),
        )

    def hold(self, checkpoint: int | None, lease_ms: int, lease: str) -> tuple[Readable, str, str]:
        """Keep a checkpoint readable for some time, or renew a lease. Return it, its lineage and the lease."""
        follower, _ = self.reading()
        until = self._clock() + lease_ms / 1000
        with self._lock:
            if lease:
                held = self._leases.get(lease)
                if held is None:
                    raise CheckpointGone("The pin of this checkpoint has ended.", fix="Pin a checkpoint again.")
                follower, number, _ = held
                self._leases[lease] = follower, number, until
                return follower.at(number), follower.lineage, lease
            readable = follower.keep(checkpoint)
            lease = secrets.token_hex(8)
            self._leases[lease] = follower, readable.version.id, until
            return readable, follower.lineage, lease

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
