"""The plan of a run: which faults occur, when, and in which driver's life. A pure function of seed and arguments."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
HARNESS = "harness"
"""In place of a master: no Spark, JVM or workers; the driver's process does everything."""
BACKENDS = ("filesystem", "rocksdb", "memory")
_LONGEST_DELAY_MS = 700
"""Upper limit of the delay after the end of an epoch. Longer than most epochs, so that any moment of one can be hit."""
_LONGEST_START_MS = 4000
"""Upper limit of the delay after the session is up, when the driver recovers and starts the first epoch."""

_AT_START = 0.3


@dataclass(frozen=True)
class Kind:
    weight: int
    """Number of faults of this kind per hundred in a mixed run."""
    does: str
    ends_life: bool = False
    """Whether it ends the driver."""
    cluster: bool = False
    """Whether it needs executors in separate processes."""
    files: bool = True
    """Whether it needs a backend with files. The others also suit the Memory backend."""


KINDS = {
    "driver": Kind(7, "SIGKILL to the driver's Python and its JVM", ends_life=True),
    "driver-jvm": Kind(4, "SIGKILL to the driver's JVM only: Python must exit with an error", ends_life=True),
    "driver-python": Kind(4, "SIGKILL to the driver's Python only: its JVM must exit", ends_life=True),
    "checkpoint": Kind(
        6,
        "SIGKILL to the driver, then a bit flip, truncation or removal of a manifest, delta or base: the next driver "
        "must refuse and name the file; then the file is restored",
        ends_life=True,
    ),
    "stop": Kind(
        4,
        "stop the job with a savepoint and resume from it at another parallelism; sometimes kill the driver while it "
        "stops",
        ends_life=True,
    ),
    "savepoint": Kind(3, "take a savepoint while the job runs"),
    "rescale": Kind(4, "change the parallelism of the running job", files=False),
    "executor": Kind(12, "SIGKILL to an executor's JVM", cluster=True, files=False),
    "worker": Kind(19, "SIGKILL to a Python worker", files=False),
    "pause": Kind(6, "SIGSTOP to a Python worker, SIGCONT a moment later", files=False),
    "replica-cut": Kind(5, "truncate a file of a replica"),
    "replica-flip": Kind(5, "flip one bit of a file of a replica, or one bit in each of its pages"),
    "replica-gone": Kind(5, "delete a file of a replica, or a complete replica"),
    "disk-full": Kind(4, "writes to checkpoints, replicas and output fail with ENOSPC for a moment"),
    "disk-error": Kind(4, "some reads and writes of those fail with EIO for a moment"),
    "disk-slow": Kind(4, "every operation on those is slow for a moment"),
    "write-limit": Kind(4, "the kernel keeps a worker or the driver from writing large files for a moment (EFBIG)"),
}
SERVER_KINDS = {
    "server": Kind(20, "SIGKILL to all processes of the server that the job uses; restart it a moment later"),
    "server-stop": Kind(5, "stop the server, gracefully or immediately, and restart it a moment later"),
    "server-pause": Kind(4, "SIGSTOP to all processes of the server, SIGCONT a moment later"),
    "connections": Kind(3, "the server closes all its connections"),
}
ALL_KINDS = KINDS | SERVER_KINDS
FILE_MIX = {name: kind.weight for name, kind in KINDS.items()}
SERVER_MIX = {
    **{"driver": 9, "driver-jvm": 4, "driver-python": 4, "checkpoint": 2, "stop": 4, "savepoint": 3, "rescale": 3},
    **{"executor": 13, "worker": 16, "pause": 4, "replica-gone": 2, "disk-full": 2, "disk-error": 2},
    **{name: kind.weight for name, kind in SERVER_KINDS.items()},
}
"""Weights per hundred faults if the job uses a server, with fewer faults of files."""
NEED_SPARK = ("driver-jvm", "driver-python", "executor", "worker", "pause")
MEMORY_KINDS = [name for name, kind in KINDS.items() if not kind.files]


@dataclass(frozen=True)
class Fault:
    index: int
    kind: str
    after: str
    """`epoch`: after the end of an epoch, i.e. during the next one; `start`: after a new driver has its session."""
    delay_ms: int
    dice: int
    """Seed for the remaining choices (which process, which file, which bit, how long)."""


@dataclass(frozen=True)
class Life:
    """One driver from its start to the fault that ends it; the last driver runs to the end of the job."""

    master: str
    faults: tuple[Fault, ...]


def make_plan(
    seed: int,
    kills: int,
    kinds: Sequence[str],
    masters: Sequence[str] = (LOCAL, CLUSTER),
    mix: Mapping[str, int] = FILE_MIX,
) -> list[Life]:
    """Distribute faults by weight for any number of them; those that need executors go to lives on a cluster."""
    dice = random.Random(f"penstock chaos {seed}")
    chosen = sorted(deal(dice, kills, {kind: mix[kind] for kind in kinds}), key=list(ALL_KINDS).index)
    ending = [kind for kind in chosen if ALL_KINDS[kind].ends_life]
    clustered = [kind for kind in chosen if ALL_KINDS[kind].cluster]
    living = [kind for kind in chosen if kind not in ending and kind not in clustered]
    dice.shuffle(ending)
    # Without faults that end a driver there is one life, and its master must suit all faults.
    lives: list[list[str]] = [[] for _ in range(len(ending) + 1)]
    places = [_master(masters, number, bool(clustered) and not ending) for number in range(len(lives))]
    with_executors = [number for number, master in enumerate(places) if "cluster" in master]
    if clustered and not with_executors:
        with_executors = [0]
        places[0] = CLUSTER
    # Some drivers die before their first epoch and get no other fault.
    at_start = {
        number for number in range(1, len(ending)) if dice.random() < _AT_START and "cluster" not in places[number]
    }
    for kind in clustered:
        lives[dice.choice(with_executors)].append(kind)
    # Recovery takes longer on a cluster, so fewer of the other faults go there.
    busy = [number for number in range(len(lives)) if number not in at_start]
    chances = [1 if "cluster" in places[number] else 4 for number in busy]
    for kind in living:
        lives[dice.choices(busy, chances)[0]].append(kind)
    plan, index = [], 0
    for number, (master, names) in enumerate(zip(places, lives, strict=True)):
        dice.shuffle(names)
        faults: list[Fault] = []
        for name in [*names, *ending[number : number + 1]]:
            after = "start" if number in at_start else "epoch"
            delay = dice.randrange(_LONGEST_START_MS if number in at_start else _LONGEST_DELAY_MS)
            faults.append(Fault(index, name, after, delay, dice.getrandbits(48)))
            index += 1
        plan.append(Life(master, tuple(faults)))
    return plan


def digest(plan: list[Life]) -> str:
    """Return a hash that identifies a plan: a run cannot be continued with another plan."""
    return hashlib.blake2b(json.dumps([asdict(life) for life in plan]).encode(), digest_size=8).hexdigest()


def _master(masters: Sequence[str], number: int, needs_cluster: bool) -> str:
    if needs_cluster:
        return next((master for master in masters if "cluster" in master), masters[0])
    # Two of three lives use the master that starts faster.
    return masters[-1] if number % 3 == 1 else masters[0]


def deal(dice: random.Random, kills: int, weights: Mapping[str, int]) -> list[str]:
    """Deal each kind in proportion to its weight, and the rest by largest remainder, with random ties."""
    total = sum(weights.values())
    shares = {kind: kills * weight / total for kind, weight in weights.items()}
    dealt = [kind for kind, share in shares.items() for _ in range(int(share))]
    rest = sorted(weights, key=lambda kind: (int(shares[kind]) - shares[kind], dice.random()))
    return dealt + rest[: kills - len(dealt)]
