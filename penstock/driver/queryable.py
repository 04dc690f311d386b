"""The states of a job that can be read from outside: checked when the job is submitted, recorded in each manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.checkpoint.manifest import Manifest, OperatorSnapshot, StateAddress
from penstock.common.options.query import QUERYABLE_STATE
from penstock.driver.report_totals import ReportTotals
from penstock.errors import PenstockError, SourceLocation
from penstock.graph.inspect import always_called, reachable_values
from penstock.graph.logical import LogicalGraph, Node
from penstock.runtime.state_operators import QueryableStateOperator
from penstock.state.descriptors import StateDescriptor


class QueryableStateDisabled(PenstockError):
    """The job declares a queryable state, but queryable state is not enabled.

    Operator action: set ``queryable-state.enable`` to true, or remove the declaration.
    """

    retryable = False


class DuplicateQueryableState(PenstockError):
    """Two states of the job are queryable under the same name.

    Operator action: choose another name for one of them.
    """

    retryable = False


class _Declared(NamedTuple):
    node: Node
    name: str
    """The name of the queryable state; empty if only the running function knows it."""
    held: bool = True
    """Whether the operator or its function has the descriptor itself. Else the function only refers to it."""


def check_queryable(graph: LogicalGraph, enabled: bool) -> None:
    """Check the queryable states that can be seen before the job runs.

    Raises QueryableStateDisabled, DuplicateQueryableState.
    """
    found = [each for node in graph.nodes.values() for each in _declared_by(node)]
    if found and not enabled:
        first = found[0]
        named = f" as '{first.name}'" if first.name else ""
        raise _disabled(f"Operator '{first.node.name}' makes a state queryable{named}", first.node.location)
    seen: dict[str, Node] = {}
    for node, name, held in found:
        if not name or not held:
            continue
        if name in seen:
            raise DuplicateQueryableState(
                f"Operators '{seen[name].name}' and '{node.name}' both make a state queryable as '{name}'.",
                fix="Choose another name for one of them.",
                locations=(node.location, seen[name].location),
            )
        seen[name] = node


def _declared_by(node: Node) -> Iterator[_Declared]:
    operator = node.operator
    if isinstance(operator, QueryableStateOperator):
        yield _Declared(node, operator.queryable_name)
        return
    function = None if operator is None else operator.function
    # An operator of the broadcast pattern has the descriptors of its states itself.
    held = [*getattr(function, "__dict__", {}).values(), *getattr(operator, "descriptors", ())]
    names = [*_names(held)]
    for name in names:
        yield _Declared(node, name)
    for name in dict.fromkeys(_names(reachable_values(function))):
        if name not in names:
            yield _Declared(node, name, held=False)
    if always_called(function, "open", "set_queryable"):
        yield _Declared(node, "")


def _names(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, StateDescriptor) and value.queryable_name is not None:
            yield value.queryable_name


def queryable_states(
    last: Manifest | None,
    snapshots: Mapping[str, OperatorSnapshot],
    totals: ReportTotals,
    enabled: bool,
    locations: Mapping[str, SourceLocation | None],
) -> dict[str, StateAddress]:
    """Return the queryable states of an epoch by name, from the totals of its reports.

    `locations`: the user's lines by uid.

    A function can first ask for a state when it processes a record or a window. After a rescale or a restart, the name
    in the last manifest therefore remains until a task asks for the state, with this name or without.

    Raises QueryableStateDisabled, DuplicateQueryableState.
    """
    found: dict[str, StateAddress] = {}
    used: set[tuple[str, str]] = set()
    for _, operator in totals.in_order():
        for part in operator.declared():
            used.update((part.uid, state) for state in part.states.keys() - set(part.unused))
            for state, name in part.queryable.items():
                address = StateAddress(uid=part.uid, state=state)
                _check(address, name, found.setdefault(name, address), snapshots, enabled, locations)
    for name, address in ({} if last is None else last.queryable).items():
        stored = address.uid in snapshots and address.state in snapshots[address.uid].states
        if enabled and stored and (address.uid, address.state) not in used:
            found.setdefault(name, address)
    return dict(sorted(found.items()))


def _check(
    address: StateAddress,
    name: str,
    first: StateAddress,
    snapshots: Mapping[str, OperatorSnapshot],
    enabled: bool,
    locations: Mapping[str, SourceLocation | None],
) -> None:
    operator = snapshots[address.uid].name
    if not enabled:
        problem = f"Operator '{operator}' makes its state '{address.state}' queryable as '{name}'"
        raise _disabled(problem, locations.get(address.uid))
    if first != address:
        raise DuplicateQueryableState(
            f"State '{first.state}' of operator '{snapshots[first.uid].name}' and state '{address.state}' of operator "
            f"'{operator}' are both queryable as '{name}'.",
            fix="Choose another name for one of them.",
            locations=(locations.get(address.uid), locations.get(first.uid)),
        )


def _disabled(problem: str, location: SourceLocation | None) -> QueryableStateDisabled:
    return QueryableStateDisabled(
        f"{problem}, but queryable state is not enabled.",
        fix=f"Set {QUERYABLE_STATE.key} to true, for example with penstock run -D {QUERYABLE_STATE.key}=true.",
        locations=(location,),
    )
