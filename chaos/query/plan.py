"""Which faults a run injects, in which order. A pure function of seed and arguments."""

from __future__ import annotations

import random

KILLS = {
    "driver": "SIGKILL to the driver's Python and its JVM; the next one continues",
    "executor": "SIGKILL to an executor, or to a worker on a master without separate executors",
    "server": "SIGKILL to a state server that is not the proxy",
    "proxy": "SIGKILL to the state server that is the proxy",
}
RESCALE, STOP = "rescale", "stop"
KINDS = (*KILLS, RESCALE, STOP)


def make_plan(seed: int, kills: int, rescales: int, stops: int) -> list[str]:
    """Return the faults in order: as many kills of each kind as possible."""
    dice = random.Random(f"penstock chaos query {seed}")
    kinds = [*KILLS]
    dice.shuffle(kinds)
    plan = [kinds[number % len(kinds)] for number in range(kills)] + [RESCALE] * rescales + [STOP] * stops
    dice.shuffle(plan)
    return plan
