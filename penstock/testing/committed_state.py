"""The contents of a harness's last checkpoint: keyed state, operator state, timers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.common.pickling import Frozen
from penstock.common.program import Program
from penstock.driver.epoch_parameters import EpochParameters
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState
from penstock.state.entries import stored_keys
from penstock.state.keys import decode_key, encode_key
from penstock.state.overlay import TIMER_KINDS, Overlay
from penstock.state.replica import Replicas
from penstock.state.ttl import timed_name
from penstock.testing.engine import LocalEngine
from penstock.testing.inside import from_inside


class CommittedState:
    """Reads committed state through the functions' own descriptors. Operators are identified by uid or name."""

    def __init__(
        self,
        graph: PhysicalGraph,
        program: Program,
        names: Mapping[str, str],
        engine: LocalEngine,
        parameters: EpochParameters,
        last: Manifest | None,
    ) -> None:
        """Create a reader. ``names`` maps names to uids, and ``parameters`` are those of the next epoch."""
        self._graph, self._program, self._names = graph, program, names
        self._engine, self._parameters, self._last = engine, parameters, last

    def state(self, name: str, key: Any, operator: str | None = None) -> Any:
        """Return the state of a key: a value, a list or a dict.

        Args:
            name: The name of the state.
            key: The key.
            operator: The uid or name of the operator. It is required if several operators have a state of this name.
        """
        with self.reading(name, operator) as (overlay, _):
            overlay.key = encode_key(key)
            return from_inside(self._program, lambda: _plain(overlay.states[name]))

    def states(self, name: str, operator: str | None = None) -> dict[Any, Any]:
        """Return the state of every key that has one, by key.

        Args:
            name: The name of the state.
            operator: The uid or name of the operator. It is required if several operators have a state of this name.
        """
        with self.reading(name, operator) as (overlay, replicas):
            keys: set[bytes] = set()
            timed = name in overlay.ttl.forms()
            for group in range(overlay.max_parallelism):
                reader = replicas.reader(group)
                if reader is not None:
                    keys.update(stored_keys(reader, group, name))
                    if timed:
                        keys.update(stored_keys(reader, group, timed_name(name)))
            result = {}
            for key in sorted(keys):
                overlay.key = key
                held = from_inside(self._program, lambda: _plain(overlay.states[name]))
                if timed and held in (None, [], {}):
                    # Stored but expired.
                    keys.discard(key)
                else:
                    result[decode_key(key)] = held
            if len(result) < len(keys):
                raise PenstockError(
                    f"Some of the {len(keys)} keys of '{name}' are equal in Python, such as 1 and True. Call state() "
                    f"for each key."
                )
            return result

    def operator_state(self, name: str, operator: str | None = None) -> list[Any]:
        """Return operator state, as one list or dict per subtask.

        A union list contains the elements that each subtask wrote. Raw state, named "raw operator state", and the state
        of a sink's writers, named "writers", are bytes.

        Args:
            name: The name of the state.
            operator: The uid or name of the operator. It is required if several operators have a state of this name.
        """
        uid = None if operator is None else self._names.get(operator, operator)
        last = self._last
        held = {} if last is None else {each: of.operator_state for each, of in last.operators.items()}
        found = [each for each, states in held.items() if name in states and uid in (None, each)]
        if len(found) != 1:
            known = {each: sorted(states) for each, states in held.items() if states}
            raise PenstockError(
                f"{len(found)} operators hold operator state '{name}' (known: {known}). Pass operator=uid."
            )
        chain = next(chain for chain in self._graph.chains if any(op.uid == found[0] for op in chain.operators))
        run = self._engine.opened(chain.id, self._parameters)
        holder = next(operator for operator in run.operators if operator.uid == found[0])
        shares = held[found[0]][name].by_subtask
        assert last is not None
        parallelism = last.operators[found[0]].parallelism
        elements = [shares[subtask % len(shares)] for subtask in range(parallelism)]
        if not holder.keeps_state:
            return elements
        decoded: list[Any] = from_inside(
            self._program, lambda: [holder.store.decode(name, share) for share in elements]
        )
        return decoded

    def timers(self, operator: str | None = None) -> list[tuple[int, Any, str]]:
        """Return (time, key, kind) of every registered timer, in order.

        Args:
            operator: The uid or name of the operator. It is required if several operators are keyed.
        """
        found = []
        with self.reading(None, operator) as (overlay, _):
            for kind in TIMER_KINDS:
                timers = overlay.timers[kind]
                least = dict.fromkeys(overlay.blocks.numbers, LEAST)
                timers.begin(least, range(overlay.max_parallelism))
                found += [(time, decode_key(key), kind) for time, key, _ in timers.due(GREATEST)]
        return sorted(found, key=lambda timer: (timer[0], timer[2], repr(timer[1])))

    def watermark_of(self, operator: str) -> int:
        """Return the lowest watermark of an operator's subtasks."""
        times = {} if self._last is None else self._last.times
        time = times.get(self._names.get(operator, operator))
        return LEAST if time is None else min(time.subtasks, default=LEAST)

    @contextmanager
    def reading(self, state: str | None, operator: str | None) -> Iterator[tuple[Overlay, Replicas]]:
        """Yield the overlay of the operator that holds a state, on top of committed state."""
        uid = None if operator is None else self._names.get(operator, operator)
        heads = [(chain, chain.operators[0]) for chain in self._graph.chains if chain.operators]
        parameters = self._parameters
        runs = [
            self._engine.opened(chain.id, parameters) for chain, head in heads if head.keyed and uid in (None, head.uid)
        ]
        overlays = [
            (run, run.overlay)
            for run in runs
            if run.overlay is not None and (state is None or state in run.overlay.states)
        ]
        if len(overlays) != 1:
            what = "keyed state" if state is None else f"a state '{state}'"
            known = {run.chain.operators[0].uid: sorted(run.overlay.states) for run in runs if run.overlay is not None}
            raise PenstockError(f"{len(overlays)} operators hold {what} (known: {known}). Pass operator=uid.")
        run, overlay = overlays[0]
        access = self._engine.state_access(parameters)
        # Hides state that has expired but is still stored.
        run.set_time(parameters.timestamp, self.watermark_of(run.chain.operators[0].uid))
        replicas = access.replicas(run.chain.operators[0].uid)
        try:
            overlay.begin(0, replicas, blocks=access.blocks[run.chain.operators[0].uid])
            yield overlay, replicas
        finally:
            replicas.close()
            overlay.release()


def _plain(state: Any) -> Any:
    """Return the contents of a state for the current key."""
    if isinstance(state, MapState):
        return dict(state.items())
    if isinstance(state, ListState):
        return list(state)
    held = state.get() if isinstance(state, (ReducingState, AggregatingState)) else state.value()
    return held.thaw() if type(held) is Frozen else held
