"""All rulings, and the ruling of a key."""

from __future__ import annotations

from functools import cache

from penstock.common.options.flink import cluster, jobs, metrics, state, tables
from penstock.common.options.flink.ruling import Ruling

RULINGS: tuple[Ruling, ...] = (*jobs.RULINGS, *state.RULINGS, *metrics.RULINGS, *tables.RULINGS, *cluster.RULINGS)


@cache
def exact() -> dict[str, Ruling]:
    """Return the rulings by key, for keys without a placeholder."""
    return {key: ruling for ruling in RULINGS for key in ruling.keys if "<" not in key and "*" not in key}


def ruling_of(key: str) -> Ruling | None:
    """Return the ruling of a key, or None if Flink has no such setting."""
    return exact().get(key) or next((ruling for ruling in RULINGS if ruling.matches(key)), None)
