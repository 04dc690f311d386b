"""The clients of the rig: each checks every answer against the records that its checkpoint includes."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from chaos.query.checkpoints import Checkpoints, Place
from chaos.query.program import KEYS, LETTERS, NAME, REMAINDERS, STATES, TALLIES, TOTALS, remainder
from penstock.query import QueryableStateClient
from penstock.query.client_types import Change, CheckpointChanges
from penstock.query.errors import (
    CheckpointGone,
    CheckpointNotReached,
    NotServed,
    QueryError,
    TooManyReads,
    UnknownJob,
    Unreachable,
)
from penstock.query.pinned import PinnedReads

UNANSWERED = (Unreachable, NotServed, UnknownJob, TooManyReads, CheckpointNotReached)
"""What a client gets while the processes that could answer are dead or start."""
_PAUSE_S = 0.05
_REST_S = 0.01
"""Between two reads of a client, so that the job gets some of the CPU time as well."""
_MIX = {"get": 62, "entries": 10, "pair": 18, "many": 5, "scan": 5}
"""Reads per hundred. The last three are pinned, over both states."""


class Reader:
    """One client, which reads at random until it is stopped. Never sees an older checkpoint than before."""

    def __init__(self, client: QueryableStateClient, known: Checkpoints, seed: int) -> None:
        self._client = client
        self._known = known
        self._dice = random.Random(seed)
        self._last = Place("", 0)
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.unanswered = 0
        self.lost_pins = 0
        self.answered_at = 0.0
        """When the last read was answered."""
        self.longest = 0.0
        """The longest time between two answers, in seconds."""
        self._answers: dict[tuple[str, Place], Any] = {}

    @property
    def reads(self) -> int:
        """The number of answered reads."""
        return sum(self.counts.values())

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            stopped.wait(_REST_S if self.read() else _PAUSE_S)

    def read(self) -> bool:
        """Read once. Return whether it was answered."""
        [kind] = self._dice.choices([*_MIX], [*_MIX.values()])
        try:
            getattr(self, f"_{kind}")()
        except UNANSWERED:
            self.unanswered += 1
            return False
        except QueryError as error:
            self.violations.append(f"{kind} failed: {type(error).__name__}: {error.statement()}")
            return False
        self.counts[kind] += 1
        now = time.monotonic()
        if self.answered_at:
            self.longest = max(self.longest, now - self.answered_at)
        self.answered_at = now
        return True

    # -- kinds of reads --------------------------------------------------------------------------------------------

    def _get(self) -> None:
        state, key = self._place()
        value, checkpoint = self._client.read(NAME, state, key)
        self._compare(self._seen(checkpoint), state, key, value)

    def _entries(self) -> None:
        letter, limit = self._dice.randrange(LETTERS), self._dice.randrange(1, REMAINDERS + 1)
        start = remainder(self._dice.randrange(REMAINDERS))
        page = self._client.entries(NAME, TALLIES, letter, start=start, limit=limit)
        place = self._seen(page.checkpoint)
        wanted = self._state(place, TALLIES).get(letter, {})
        entries = dict(sorted(entry for entry in wanted.items() if entry[0] >= start)[:limit])
        if page.entries != entries:
            self._wrong(place, f"the entries of key {letter} of {TALLIES}", page.entries, entries)

    def _pair(self) -> None:
        key, letter = self._dice.randrange(KEYS), self._dice.randrange(LETTERS)

        def both(pinned: PinnedReads, place: Place) -> None:
            total, tally = pinned.get(TOTALS, key), pinned.get(TALLIES, letter)
            self._compare(place, TOTALS, key, total)
            self._compare(place, TALLIES, letter, tally)

        self._pinned(both)

    def _many(self) -> None:
        keys = self._dice.sample(range(KEYS), 20)

        def both(pinned: PinnedReads, place: Place) -> None:
            found, tallied = pinned.get_many(TOTALS, keys), pinned.get_many(TALLIES, [*range(LETTERS)])
            wanted = self._state(place, TOTALS)
            self._equal(place, TOTALS, found, {key: wanted[key] for key in keys if key in wanted})
            self._equal(place, TALLIES, tallied, self._state(place, TALLIES))

        self._pinned(both)

    def _scan(self) -> None:
        def both(pinned: PinnedReads, place: Place) -> None:
            for state in (TOTALS, TALLIES):
                found: dict[Any, Any] = {}
                for row in pinned.scan(state).read_all().to_pylist():
                    if state == TALLIES:
                        found.setdefault(row["key"], {})[row["map_key"]] = row["value"]
                    else:
                        found[row["key"]] = row["value"]
                self._equal(place, state, found, self._state(place, state))

        self._pinned(both)

    def _pinned(self, read: Callable[[PinnedReads, Place], None]) -> None:
        try:
            with self._client.pinned(NAME, lease=10.0) as pinned:
                read(pinned, self._seen(pinned.checkpoint))
        except CheckpointGone as error:
            # The server that kept the checkpoint is dead. The rig compares the number with that of its kills.
            self.lost_pins += 1
            raise NotServed(error.statement()) from None

    # -- checks ----------------------------------------------------------------------------------------------------

    def _place(self) -> tuple[str, int]:
        if self._dice.random() < 0.7:
            return TOTALS, self._dice.randrange(KEYS)
        return TALLIES, self._dice.randrange(LETTERS)

    def _seen(self, checkpoint: int) -> Place:
        # The client notes the lineage of the last answer, to never go back.
        place = Place(self._client._seen[NAME][0], checkpoint)
        if place < self._last:
            self.violations.append(f"a client read {_named(place)} after {_named(self._last)}")
        self._last = max(self._last, place)
        return place

    def _state(self, place: Place, state: str) -> dict[Any, Any]:
        asked = state, place
        if asked not in self._answers:
            if len(self._answers) > 100:
                self._answers.clear()
            self._answers[asked] = state_at(self._known, place, state, self.violations)
        found: dict[Any, Any] = self._answers[asked]
        return found

    def _compare(self, place: Place, state: str, key: int, value: Any) -> None:
        wanted = self._state(place, state).get(key)
        if value != wanted:
            self._wrong(place, f"key {key} of {state}", value, wanted)

    def _equal(self, place: Place, state: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self._wrong(place, state, found, wanted)

    def _wrong(self, place: Place, what: str, found: Any, wanted: Any) -> None:
        self.violations.append(f"{_named(place)}: {what} is {_short(found)}, but {_short(wanted)} was committed")


class Subscriber:
    """Applies the changes of each checkpoint to a dict, which must then equal the state of the checkpoint."""

    def __init__(self, client: QueryableStateClient, known: Checkpoints, state: str) -> None:
        self._client = client
        self._known = known
        self._state = state
        self.violations: list[str] = []
        self.checkpoints = 0
        self.resets = 0

    def run(self, stopped: threading.Event) -> None:
        held: dict[Any, Any] = {}
        last: Place | None = None
        while not stopped.is_set():
            since, lineage = (None, "") if last is None else (last.number, last.lineage)
            try:
                for changes in self._client.subscribe(NAME, self._state, since=since, lineage=lineage):
                    last = self._check(held, last, changes)
                    if stopped.is_set():
                        return
            except UNANSWERED:
                pass
            except QueryError as error:
                if not stopped.is_set():
                    self.violations.append(f"a subscription failed: {type(error).__name__}: {error.statement()}")
            stopped.wait(_PAUSE_S)

    def _check(self, held: dict[Any, Any], last: Place | None, changes: CheckpointChanges) -> Place:
        place = Place(changes.lineage, changes.checkpoint)
        self.checkpoints += 1
        if changes.reset:
            self.resets += 1
            held.clear()
        elif last is None or place != (last.lineage, last.number + 1):
            self.violations.append(f"the changes of {_named(place)} of {self._state} came after those of {last}")
        if last is not None and place < last:
            self.violations.append(f"a subscriber got {_named(place)} after {_named(last)}")
        apply(held, changes.changes)
        wanted = state_at(self._known, place, self._state, self.violations)
        if held != wanted:
            found, wants = _short(held), _short(wanted)
            self.violations.append(f"{_named(place)}: the changes of {self._state} give {found}, but it holds {wants}")
            held.clear()
            held.update(wanted)
        return place


def apply(state: dict[Any, Any], changes: list[Change]) -> None:
    """Apply the changes of a checkpoint to a dict."""
    for change in changes:
        if change.map_key is not None:
            entries = state.setdefault(change.key, {})
            if change.value is None:
                entries.pop(change.map_key, None)
            else:
                entries[change.map_key] = change.value
            if not entries:
                del state[change.key]
        elif change.value is None:
            state.pop(change.key, None)
        else:
            state[change.key] = change.value


def state_at(known: Checkpoints, place: Place, state: str, violations: list[str]) -> dict[Any, Any]:
    """Return what a state holds at a checkpoint."""
    records = known.records_of(place)
    if records is None:
        violations.append(f"an answer names {_named(place)}, which was never completed")
        return {}
    found: dict[Any, Any] = STATES[state](records)
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _named(place: Place) -> str:
    return f"checkpoint {place.number} of {place.lineage}"
