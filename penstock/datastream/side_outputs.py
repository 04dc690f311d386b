"""Which operators have side outputs: process functions, windows and joins with late data, sources with dead letters."""

from __future__ import annotations

from penstock.common.source_locations import calling_location
from penstock.connectors.dead_letters import DeadLetter
from penstock.graph.logical import FORWARD, GraphError, Input, LogicalGraph, Node, Partitioning
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.joins import IntervalJoinOperator
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.process_operators import CoProcessOperator, ProcessOperator
from penstock.runtime.windows.operator import WindowOperator

_FORWARD = Partitioning(FORWARD)


def side_output(graph: LogicalGraph, node: Node, tag: OutputTag) -> Input:
    """The edge that reads the side output `tag` of `node`; of a source, its dead letters."""
    if isinstance(node.operator, TimestampsOperator) and len(node.inputs) == 1:
        # It has no side outputs of its own; those of the source before it are meant.
        node = graph.nodes[node.inputs[0].node]
    if node.source is not None:
        return _dead_letters(node, tag)
    if not isinstance(node.operator, (ProcessOperator, CoProcessOperator, WindowOperator, IntervalJoinOperator)):
        raise GraphError(
            f"'{node.name}' has no side outputs: only process functions can yield `tag, value`, and only windows "
            f"and interval joins have late data."
        )
    return Input(node.id, _FORWARD, tag)


def _dead_letters(node: Node, tag: OutputTag) -> Input:
    assert node.source is not None
    asked = node.source.dead_letters
    if asked != tag:
        raise GraphError(
            f"Source '{node.name}' has no side output {tag!r}"
            + (f": its dead letters are {asked!r}." if asked is not None else "."),
            fix=f"Ask for its dead letters: env.from_source(..., dead_letters={tag!r}).",
            locations=(calling_location(), node.location),
        )
    return Input(node.id, _FORWARD, tag if tag.declared is not None else OutputTag(tag.tag_id, DeadLetter))
