"""How long a cluster remembers ended jobs: a limited number of them, for a limited time."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cluster.records import JobView


def expired(jobs: Iterable[JobView], now_ms: int, most: int, most_age_ms: int) -> list[str]:
    """Return the ids of the ended jobs to forget: those beyond `most`, oldest first, and those that are too old."""
    ended = sorted((view.verdict.at_ms, view.submission.id) for view in jobs if view.verdict is not None)
    too_many = ended[: max(0, len(ended) - most)]
    return [job_id for at_ms, job_id in ended if (at_ms, job_id) in too_many or now_ms - at_ms > most_age_ms]
