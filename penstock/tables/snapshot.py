"""The common base of savepoints and checkpoints: operators with states, each of which is a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoint.manifest import OperatorSnapshot
from penstock.errors import PenstockError
from penstock.state.operator_state import RAW, RAW_KEYED

if TYPE_CHECKING:
    from penstock.tables.sources import KeyedSource
    from penstock.tables.table import StateTable

KINDS = ("value", "list", "map", "reducing", "aggregating", "timeline")
"""The kinds of keyed state; the first word of a stored type."""
TIMERS = "timers"
"""The name of the table of an operator's timers."""
_OF_TTL = "TTL_"


class StateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A state in a savepoint or checkpoint."""

    uid: str
    operator: str
    name: str
    kind: str
    """value, list, map, reducing, aggregating, timeline, timers; for operator state split, union, broadcast, raw."""
    type: str
    """The stored type."""
    ttl_ms: int | None = None


class NoSuchState(PenstockError):
    """The operator or state does not exist. The message lists those that do.

    Operator action: use one of the names in the message.
    """


class Snapshot(ABC):
    """A job's state at one point in time, stored in files."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The location of the snapshot, for display."""

    @abstractmethod
    def snapshots(self) -> dict[str, OperatorSnapshot]:
        """Return the operators' snapshots by uid."""

    @abstractmethod
    def keyed_source(self, uid: str) -> KeyedSource:
        """Return the stored blocks of an operator's keyed state."""

    def states(self, uid: str | None = None) -> list[StateInfo]:
        """Return the states of one operator, or of all."""
        if uid is not None:
            self._operator(uid)
        snapshots = self.snapshots()
        return [info for each in ([uid] if uid is not None else snapshots) for info in _infos(each, snapshots[each])]

    def state(
        self,
        uid: str,
        name: str,
        *,
        keys_as_text: bool = False,
        allow_pickle: bool = False,
    ) -> StateTable:
        """Return a state as a table.

        Args:
            uid: The operator's uid.
            name: The state's name, or "timers" for the operator's timers.
            keys_as_text: Show keys as text; required if the state has keys of several types.
            allow_pickle: Let ``to_pandas`` load pickled values, which can run arbitrary code. Use it only for
                savepoints that you trust as much as your own program.

        Raises:
            NoSuchState: The operator or the state does not exist.
        """
        # Every driver imports this module, so code that reads states is imported lazily.
        from penstock.tables.contents import KeyedContent, OperatorContent
        from penstock.tables.keys import TEXT
        from penstock.tables.table import StateTable

        snapshot = self._operator(uid)
        info = next((info for info in _infos(uid, snapshot) if info.name == name), None)
        if info is None:
            raise NoSuchState(
                f"Operator '{snapshot.name}' (uid '{uid}') of {self.path} has no state '{name}', only "
                f"{[info.name for info in _infos(uid, snapshot)]}."
            )
        shares = snapshot.operator_state.get(name)
        if shares is not None and name not in snapshot.states:
            described = f"Operator state '{name}' of operator '{snapshot.name}' (uid '{uid}')"
            return StateTable(info, OperatorContent(described, shares, self.path), allow_pickle)
        key = TEXT if keys_as_text else None
        return StateTable(info, KeyedContent(self.keyed_source(uid), uid, snapshot, name, key), allow_pickle)

    def _operator(self, uid: str) -> OperatorSnapshot:
        snapshot = self.snapshots().get(uid)
        if snapshot is None:
            raise NoSuchState(f"{self.path} has no operator with uid '{uid}', only {[*self.snapshots()]}.")
        return snapshot


def _infos(uid: str, snapshot: OperatorSnapshot) -> Iterator[StateInfo]:
    for name, schema in sorted(snapshot.states.items()):
        kind, _, text = schema.partition(" ")
        form = snapshot.ttl.get(name)
        if kind not in KINDS:
            kind, text = "value", schema
        yield StateInfo(
            uid=uid,
            operator=snapshot.name,
            name=name,
            kind=kind,
            type=text,
            ttl_ms=None if form is None else form.ttl_ms,
        )
    # Timers that expire TTL entries are internal.
    if TIMERS not in snapshot.states and any(
        least for kind, least in snapshot.timers.items() if not kind.startswith(_OF_TTL)
    ):
        yield StateInfo(uid=uid, operator=snapshot.name, name=TIMERS, kind=TIMERS, type="timer")
    for name, shares in sorted(snapshot.operator_state.items()):
        if name in (RAW, RAW_KEYED):
            if any(shares.by_subtask):
                yield StateInfo(uid=uid, operator=snapshot.name, name=name, kind="raw", type="bytes")
        elif name not in snapshot.states:
            yield StateInfo(uid=uid, operator=snapshot.name, name=name, kind=shares.mode, type=shares.schema)
