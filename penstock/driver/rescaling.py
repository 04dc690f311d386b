"""Rescaling a running job: validates a requested parallelism, preserves it across restarts, and determines the blocks
of state that follow from it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.manifest import Manifest
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain
from penstock.state.blocks import Blocks, blocks_for

Scale = dict[int, int]
"""Parallelism by chain ID, for chains whose parallelism differs from the program's."""


class CannotRescale(PenstockError):
    """An operator cannot have the requested parallelism. Nothing changed; the job continues.

    Operator action: request a parallelism within the limits that the message gives.
    """


class RescaleFailed(PenstockError):
    """The epoch that was to change the parallelism of a job did not complete, so the job keeps its former parallelism.

    The restart strategy decides whether the job continues, as after the failure of any epoch.

    Operator action: follow the cause that the message gives, and rescale again once the job runs.
    """


def scale_for(program: PhysicalGraph, wanted: int | Mapping[str, int], scale: Mapping[int, int]) -> Scale:
    """Return the scale of the program's graph after this request; `scale` is the current one.

    An int applies to all operators without an explicit parallelism. A mapping sets the parallelism of operators by uid
    or name; operators chained to them are part of the same task and change too.
    """
    if isinstance(wanted, int):
        asked = {chain.id: wanted for chain in _tasks(program) if not chain.own_parallelism}
        if not asked:
            raise CannotRescale(
                "Every operator of this job has an explicit parallelism, so a single number applies to none of them.",
                fix="Name the operators: client.rescale({'uid': 4}).",
            )
    else:
        asked = {_chain_named(program, name).id: number for name, number in wanted.items()}
    after = {**scale, **asked}
    for number, parallelism in asked.items():
        _check(program.chains[number], parallelism)
    for edge in program.edges:
        sender, receiver = program.chains[edge.from_chain], program.chains[edge.to_chain]
        numbers = [after.get(chain.id, chain.parallelism) for chain in (sender, receiver)]
        if edge.kind == "forward" and edge.location is not None and numbers[0] != numbers[1]:
            raise CannotRescale(
                f"forward() between '{sender.name}' and '{receiver.name}' needs equal parallelism, but the request "
                f"would make it go from {numbers[0]} to {numbers[1]}.",
                fix=f"Rescale both: client.rescale({{{_uid(sender)!r}: n, {_uid(receiver)!r}: n}}).",
            )
    return {number: n for number, n in after.items() if n != program.chains[number].parallelism}


def remembered(program: PhysicalGraph, scale: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """Return the manifest's form: by uid of a task's first operator, the program's parallelism and the current one."""
    return {_uid(program.chains[number]): (program.chains[number].parallelism, n) for number, n in scale.items()}


def recalled(program: PhysicalGraph, held: Mapping[str, tuple[int, int]]) -> Scale:
    """Return the scale stored in a manifest. If the program's parallelism changed since, the program wins."""
    scale = {}
    for chain in _tasks(program):
        before, parallelism = held.get(_uid(chain), (0, 0))
        if before == chain.parallelism and parallelism <= chain.max_parallelism:
            scale[chain.id] = parallelism
    return scale


def blocks_after(last: Manifest | None, graph: PhysicalGraph) -> dict[str, Blocks]:
    """Return the blocks of keyed operators in the epoch after a checkpoint, by uid. `graph` has its parallelism."""
    before = {} if last is None else last.blocks
    return {
        uid: blocks_for(chain.parallelism, chain.max_parallelism, before.get(uid))
        for chain in graph.chains
        if chain.operators and chain.operators[0].keyed
        for uid in [chain.operators[0].uid]
    }


def _tasks(program: PhysicalGraph) -> list[Chain]:
    return [chain for chain in program.chains if chain.level > 0]


def _uid(chain: Chain) -> str:
    return chain.operators[0].uid if chain.operators else chain.source_uid or ""


def _chain_named(program: PhysicalGraph, name: str) -> Chain:
    found = [
        chain
        for chain in program.chains
        if any(name in (operator.uid, operator.name) for operator in chain.operators) or name == chain.source_uid
    ]
    if not found:
        known = ", ".join(f"'{operator.uid}'" for chain in _tasks(program) for operator in chain.operators)
        raise CannotRescale(f"This job has no operator '{name}'.", fix=f"Use one of the uids {known}.")
    if len(found) > 1:
        raise CannotRescale(f"Several operators are named '{name}'.", fix="Use the operator's uid.")
    if found[0].level == 0:
        raise CannotRescale(
            f"'{name}' runs in the chain of source '{found[0].source_name}', once per Spark partition, so "
            f"it cannot be rescaled.",
            fix="Call set_parallelism(n) on it in the program to make it a separate task.",
        )
    return found[0]


def _check(chain: Chain, parallelism: int) -> None:
    if type(parallelism) is not int or not 1 <= parallelism <= chain.max_parallelism:
        raise CannotRescale(
            f"Operator '{chain.operators[0].name}' (uid '{_uid(chain)}') cannot have a parallelism of {parallelism!r}: "
            f"its state has {chain.max_parallelism} key groups, and a subtask needs at least one.",
            fix=f"Choose a number from 1 to {chain.max_parallelism}.",
        )
