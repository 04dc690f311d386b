"""Find out whether a run tested what it was meant to test: a rig whose faults mostly miss proves little."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.progress import Outcome

_ENOUGH = 3
"""From this many of one kind on, most of them must succeed."""


def blind(outcomes: list[Outcome]) -> list[str]:
    """Return the kinds of fault that mostly found no target, and the actions of clients that mostly failed."""
    faults = _mostly((outcome.kind, outcome.missed) for outcome in outcomes)
    actions = _mostly((outcome.action, bool(outcome.failure)) for outcome in outcomes if outcome.action)
    return [
        *(f"{kind}: {missed} of {count} faults found no target; the rig is blind" for kind, missed, count in faults),
        *(f"{action}: {failed} of {count} failed; the rig is blind" for action, failed, count in actions),
    ]


def _mostly(results: Iterable[tuple[str, bool]]) -> list[tuple[str, int, int]]:
    """Return the kinds that failed more often than not, with the number of failures and of all."""
    found: dict[str, list[bool]] = {}
    for kind, failed in results:
        found.setdefault(kind, []).append(failed)
    return [
        (kind, sum(failed), len(failed))
        for kind, failed in sorted(found.items())
        if len(failed) >= _ENOUGH and sum(failed) * 2 > len(failed)
    ]
