"""Resolves side outputs of process functions, of windows and joins (late data), and of sources (dead letters)."""

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
    """Return the edge that reads the side output `tag` of `node`. The side output of a source is its dead letters."""
    if isinstance(node.operator, TimestampsOperator) and len(node.inputs) == 1:
        # A timestamp operator has no side outputs, so the tag refers to the source before it.
        node = graph.nodes[node.inputs[0].node]
    if node.source is not None:
        return _dead_letters(node, tag)
    if not isinstance(node.operator, (ProcessOperator, CoProcessOperator, WindowOperator, IntervalJoinOperator)):
        raise GraphError(
            f"'{node.name}' has no side outputs. Only process functions can yield `tag, value`, and only windows "
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
            fix=f"Enable its dead letters: env.from_source(..., dead_letters={tag!r}).",
            locations=(calling_location(), node.location),
        )
    return Input(node.id, _FORWARD, tag if tag.declared is not None else OutputTag(tag.tag_id, DeadLetter))
