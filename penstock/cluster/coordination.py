"""The coordination of Dispatchers: which one leads, where it is, and which jobs it has to look after.

The Dispatcher uses `Coordination`. With `high-availability.type: none` it is `NoCoordination`, with `zookeeper` it is
`penstock.cluster.zookeeper.ZooKeeperCoordination`. Neither decides over a job: the records in storage do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from penstock.cluster.leadership import BecomeLeader, Instruction
from penstock.cluster.records import Records
from penstock.errors import PenstockError


class CoordinationUnavailable(PenstockError):
    """ZooKeeper did not answer in time, or the connection was lost. The change might have been made.

    Operator action: try again. If it persists, check that a majority of the ZooKeeper servers runs and can be reached.
    """


class Coordination(Protocol):
    """The part of a cluster that Dispatchers share, apart from the records."""

    @property
    def leading(self) -> bool:
        """Whether this Dispatcher can plan and change things now. Ask before every such step: it costs nothing."""
        ...

    @property
    def problem(self) -> str:
        """The reason why this Dispatcher cannot take part; empty if it can."""
        ...

    def start(self, address: str, on_instruction: Callable[[Instruction], None]) -> None:
        """Take part, with the address under which others reach this Dispatcher, such as http://host:8081.

        Instructions arrive in order, in a thread that the callback must not block. An instruction can be outdated when
        it arrives, `leading` never is.
        """
        ...

    def leader_address(self) -> str | None:
        """Return the last known address of the leader, from memory; None if it is not known."""
        ...

    def add_job(self, job_id: str) -> None:
        """Make every future leader look after a job, whose record exists already. Can be repeated.

        Raises NotLeading, CoordinationUnavailable.
        """
        ...

    def remove_job(self, job_id: str) -> bool:
        """Forget an ended job. Return False if that is not yet possible; it is logged, and tried again by the leader.

        Raises NotLeading.
        """
        ...

    def pointers(self) -> Mapping[str, str]:
        """Return the jobs to look after. The value is empty, or the reason why the pointer must not be followed.

        Raises CoordinationUnavailable.
        """
        ...

    def living_job_managers(self) -> set[tuple[str, int]]:
        """Return the job id and attempt of every JobManager that reports itself alive.

        One that is missing is not proven dead: ask its process. Raises CoordinationUnavailable.
        """
        ...

    def agents(self) -> Mapping[str, Sequence[str]]:
        """Return the last known addresses of all other Dispatchers by host, leading or not, from memory."""
        ...

    def withdraw(self) -> None:
        """Step down if necessary, and leave the election. The Dispatcher still finds others, and they find it.

        Without another Dispatcher, this has no effect.
        """
        ...

    def close(self) -> None:
        """Step down if necessary, and leave at once, so that another Dispatcher can take over."""
        ...


class NoCoordination:
    """The only Dispatcher of a cluster. It always leads, and the records are the only list of jobs."""

    problem = ""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._address: str | None = None

    @property
    def leading(self) -> bool:
        return self._address is not None

    def start(self, address: str, on_instruction: Callable[[Instruction], None]) -> None:
        self._address = address
        on_instruction(BecomeLeader(epoch=1))

    def leader_address(self) -> str | None:
        return self._address

    def add_job(self, job_id: str) -> None:
        pass

    def remove_job(self, job_id: str) -> bool:
        return True

    def pointers(self) -> Mapping[str, str]:
        return dict.fromkeys(self._records.job_ids(), "")

    def living_job_managers(self) -> set[tuple[str, int]]:
        return set()

    def agents(self) -> Mapping[str, Sequence[str]]:
        return {}

    def withdraw(self) -> None:
        pass

    def close(self) -> None:
        self._address = None
