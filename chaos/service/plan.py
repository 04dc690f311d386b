"""The plan of a run against the service: faults, and what clients do at the same time. A function of seed and count."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.plan import deal

_LONGEST_DELAY_MS = 1500


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    weight: int
    """Number of faults of this kind per hundred in a mixed run."""
    does: str
    zookeeper: int = 0
    """How many ZooKeeper servers it needs."""
    mount: bool = False
    """Whether it needs its own file system for the storage of the records."""


KINDS = {
    "dispatcher-kill": Kind(12, "SIGKILL to the leading Dispatcher; restart it a moment later"),
    "dispatcher-pause": Kind(10, "SIGSTOP to the leading Dispatcher beyond the session timeout, then SIGCONT"),
    "dispatchers-kill": Kind(6, "SIGKILL to all Dispatchers; restart them a moment later"),
    "standby-kill": Kind(3, "SIGKILL to the Dispatcher that does not lead; restart it a moment later", zookeeper=1),
    "host-kill": Kind(8, "SIGKILL to the leading Dispatcher and to all processes of a job at once"),
    "jobmanager-kill": Kind(10, "SIGKILL to the Python process of a JobManager"),
    "jobmanager-pause": Kind(8, "SIGSTOP to a JobManager, for less or more than heartbeat.timeout, then SIGCONT"),
    "executor-kill": Kind(9, "SIGKILL to the JVM of a job, which is its executor"),
    "worker-kill": Kind(9, "SIGKILL to a Python worker of a job"),
    "zookeeper-one": Kind(6, "SIGKILL to one of three ZooKeeper servers; restart it a moment later", zookeeper=3),
    "zookeeper-all": Kind(6, "SIGKILL to all ZooKeeper servers; restart them a moment later", zookeeper=1),
    "zookeeper-pause": Kind(
        5, "SIGSTOP to all ZooKeeper servers beyond the session timeout, then SIGCONT", zookeeper=1
    ),
    "records-read-only": Kind(4, "the file system of the records is mounted read-only for a while", mount=True),
    "records-full": Kind(4, "the file system of the records is full for a while", mount=True),
}

ACTIONS = {"submit": 30, "cancel": 14, "savepoint": 16, "rescale": 16, "stop": 10, "finish": 14}
"""What a client does during a fault, per hundred."""


@dataclass(frozen=True)
class Step:
    """A fault, and the action of a client that begins `delay_ms` before or after it."""

    index: int
    kind: str
    action: str
    delay_ms: int
    """Negative: the action begins first."""
    dice: int
    """Seed for the remaining choices: which job, which process, how long."""


def possible(zookeeper: int, mount: bool) -> list[str]:
    """Return the kinds of faults that a cluster with this many ZooKeeper servers can have."""
    return [name for name, kind in KINDS.items() if kind.zookeeper <= zookeeper and (mount or not kind.mount)]


def left_out(zookeeper: int, mount: bool) -> list[str]:
    """Return the kinds of faults that the host prevents."""
    return [kind for kind in possible(zookeeper, mount=True) if kind not in possible(zookeeper, mount)]


def make_plan(seed: int, count: int, kinds: Sequence[str]) -> list[Step]:
    """Distribute faults and actions by weight, in random order."""
    dice = random.Random(f"penstock service chaos {seed}")
    faults = deal(dice, count, {kind: KINDS[kind].weight for kind in kinds})
    actions = deal(dice, count, ACTIONS)
    dice.shuffle(faults)
    dice.shuffle(actions)
    return [
        Step(index, kind, action, dice.randrange(-_LONGEST_DELAY_MS, _LONGEST_DELAY_MS), dice.randrange(2**32))
        for index, (kind, action) in enumerate(zip(faults, actions, strict=True))
    ]
