"""The plan of a run: which faults, when, in which driver's life. A pure function of the seed and what is asked for."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
HARNESS = "harness"
"""In the place of a master: no Spark, no JVM, no workers; the driver's process does it all."""
BACKENDS = ("filesystem", "rocksdb", "memory")
_LONGEST_DELAY_MS = 700
"""After an epoch began: longer than most epochs take, so that every instant of one is hit."""
_LONGEST_START_MS = 4000
"""After the session is there: the driver recovers, the first epoch begins."""

_AT_START = 0.3


@dataclass(frozen=True)
class Kind:
    weight: int
    """Of a hundred faults of a mixed run, so many are of this kind."""
    does: str
    ends_life: bool = False
    """Whether the driver does not survive it."""
    cluster: bool = False
    """Whether it needs executors that are processes of their own."""
    files: bool = True
    """Whether it needs a backend with files; what does not is right for Memory too."""


KINDS = {
    "driver": Kind(7, "SIGKILL to the driver's Python and its JVM", ends_life=True),
    "driver-jvm": Kind(4, "SIGKILL to the driver's JVM only: Python must end by itself, with an error", ends_life=True),
    "driver-python": Kind(4, "SIGKILL to the driver's Python only: its JVM must end by itself", ends_life=True),
    "checkpoint": Kind(
        6,
        "SIGKILL to the driver, then a bit flip, a cut or a removal of a manifest, delta or base: the next driver must "
        "refuse and name the file; it is put back",
        ends_life=True,
    ),
    "stop": Kind(
        4,
        "the job is stopped with a savepoint and begins with it at another parallelism; sometimes its driver is killed "
        "meanwhile",
        ends_life=True,
    ),
    "savepoint": Kind(3, "a savepoint is made while the job runs, and whatever comes next"),
    "rescale": Kind(4, "the running job is given another parallelism", files=False),
    "executor": Kind(12, "SIGKILL to an executor's JVM", cluster=True, files=False),
    "worker": Kind(19, "SIGKILL to a Python worker", files=False),
    "pause": Kind(6, "SIGSTOP to a Python worker, SIGCONT a moment later", files=False),
    "replica-cut": Kind(5, "a file of a replica is cut off"),
    "replica-flip": Kind(5, "one bit of a file of a replica, or one of each of its pages, is another"),
    "replica-gone": Kind(5, "a file of a replica, or a whole replica, is deleted"),
    "disk-full": Kind(4, "writing to checkpoints, replicas and output fails with ENOSPC for a moment"),
    "disk-error": Kind(4, "some reads and writes of those fail with EIO for a moment"),
    "disk-slow": Kind(4, "every operation on those takes long for a moment"),
    "write-limit": Kind(4, "the kernel lets a worker or the driver write no large files for a moment (EFBIG)"),
}
SERVER_KINDS = {
    "server": Kind(20, "SIGKILL to all processes of the server at the job's ends; it is started again a moment later"),
    "server-stop": Kind(5, "the server is stopped, in good order or at once, and started again a moment later"),
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
"""Of a hundred faults where a server is at the job's ends: fewer of what files can suffer."""
NEED_SPARK = ("driver-jvm", "driver-python", "executor", "worker", "pause")
MEMORY_KINDS = [name for name, kind in KINDS.items() if not kind.files]


@dataclass(frozen=True)
class Fault:
    index: int
    kind: str
    after: str
    """`epoch`: after the end of an epoch, so within the next; `start`: after the session of a new driver is there."""
    delay_ms: int
    dice: int
    """What else is to be chosen (which process, which file, which bit, how long) follows from this number."""


@dataclass(frozen=True)
class Life:
    """One driver from its start to the fault that ends it; the last one's ends with the job."""

    master: str
    faults: tuple[Fault, ...]


def make_plan(
    seed: int,
    kills: int,
    kinds: Sequence[str],
    masters: Sequence[str] = (LOCAL, CLUSTER),
    mix: Mapping[str, int] = FILE_MIX,
) -> list[Life]:
    """Kinds are dealt by weight, so that any number of faults is mixed; those that need executors get a cluster."""
    dice = random.Random(f"penstock chaos {seed}")
    chosen = sorted(_deal(dice, kills, {kind: mix[kind] for kind in kinds}), key=list(ALL_KINDS).index)
    ending = [kind for kind in chosen if ALL_KINDS[kind].ends_life]
    clustered = [kind for kind in chosen if ALL_KINDS[kind].cluster]
    living = [kind for kind in chosen if kind not in ending and kind not in clustered]
    dice.shuffle(ending)
    # Without a driver kill there is one life, and it must have what its faults need.
    lives: list[list[str]] = [[] for _ in range(len(ending) + 1)]
    places = [_master(masters, number, bool(clustered) and not ending) for number in range(len(lives))]
    with_executors = [number for number, master in enumerate(places) if "cluster" in master]
    if clustered and not with_executors:
        with_executors = [0]
        places[0] = CLUSTER
    # Some drivers die before their first epoch; nothing else happens to those.
    at_start = {
        number for number in range(1, len(ending)) if dice.random() < _AT_START and "cluster" not in places[number]
    }
    for kind in clustered:
        lives[dice.choice(with_executors)].append(kind)
    # An epoch on a cluster takes longer to recover, so fewer of the others happen there.
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
    """Names a plan: a run that was begun with another one cannot be gone on with."""
    return hashlib.blake2b(json.dumps([asdict(life) for life in plan]).encode(), digest_size=8).hexdigest()


def _master(masters: Sequence[str], number: int, needs_cluster: bool) -> str:
    if needs_cluster:
        return next((master for master in masters if "cluster" in master), masters[0])
    # Two lives of three are cheap to start.
    return masters[-1] if number % 3 == 1 else masters[0]


def _deal(dice: random.Random, kills: int, weights: Mapping[str, int]) -> list[str]:
    """Each kind as often as its weight says, the rest by chance, among those with the largest remainders."""
    total = sum(weights.values())
    shares = {kind: kills * weight / total for kind, weight in weights.items()}
    dealt = [kind for kind, share in shares.items() for _ in range(int(share))]
    rest = sorted(weights, key=lambda kind: (int(shares[kind]) - shares[kind], dice.random()))
    return dealt + rest[: kills - len(dealt)]
