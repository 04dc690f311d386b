"""The execution plan as JSON, in the format of Flink's plan visualizer, with additional fields."""

from __future__ import annotations

import json
from typing import Any

from penstock.graph.logical import KEY, Input, LogicalGraph, Node
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain


def ship_strategy(kind: str) -> str:
    """Return Flink's name of an edge's kind."""
    return "HASH" if kind == KEY else kind.upper()


def execution_plan(logical: LogicalGraph, physical: PhysicalGraph, indent: int | None = 2) -> str:
    return json.dumps(plan_of(logical, physical), indent=indent)


def flink_plan(logical: LogicalGraph, physical: PhysicalGraph) -> str:
    """Return the plan with the values that Flink has in its fields; the others stay."""
    plan = plan_of(logical, physical)
    tasks = {chain.id: chain.tasks for chain in physical.chains}
    for node in plan["nodes"]:
        prefix = {"Data Source": "Source: ", "Data Sink": "Sink: "}.get(node["pact"], "")
        node["type"] = f"{prefix}{node['type'].removeprefix(prefix)}"
        if logical.nodes[node["id"]].description is None:
            node["contents"] = f"{prefix}{node['contents']}"
        node["parallelism"] = node["parallelism"] or tasks[node["chain"]]
        for edge in node.get("predecessors", ()):
            # Flink writes this for every input.
            edge["side"] = "second"
    return json.dumps(plan, indent=2)


def plan_of(logical: LogicalGraph, physical: PhysicalGraph) -> dict[str, Any]:
    """Return the plan: `nodes`, each one after its inputs."""
    places: dict[str, tuple[Chain, bool]] = {}
    for chain in physical.chains:
        if chain.source_uid is not None:
            places[chain.source_uid] = chain, False
        for place, operator in enumerate(chain.operators):
            places[operator.uid] = chain, place == 0 and chain.source_uid is None
    return {"nodes": [_node(node, logical, physical, *places[node.uid]) for node in logical.in_order()]}


def _node(node: Node, logical: LogicalGraph, physical: PhysicalGraph, chain: Chain, is_head: bool) -> dict[str, Any]:
    source, operator = node.source, node.operator
    entry: dict[str, Any] = {
        "id": node.id,
        "uid": node.uid,
        "uid_given": node.given_uid is not None,
        "type": f"Source: {node.name}" if source is not None else node.name,
        "pact": "Data Source" if source is not None else "Data Sink" if node.is_sink else "Operator",
        "contents": node.description or node.name,
        "parallelism": chain.parallelism or None,
        "max_parallelism": chain.max_parallelism or None,
        "chain": chain.id,
        "level": chain.level,
        "output_type": None if node.output_type is None else _type_name(node.output_type),
    }
    if source is not None:
        entry["bounded"] = source.bounded
    if operator is not None:
        entry["operator"] = operator.kind
        entry["keyed"] = operator.keyed
    if node.slot_sharing_group is not None:
        entry["slot_sharing_group"] = node.slot_sharing_group
    if node.inputs:
        entry["predecessors"] = [_predecessor(edge, logical, physical, chain, is_head) for edge in node.inputs]
    return entry


def _predecessor(
    edge: Input, logical: LogicalGraph, physical: PhysicalGraph, chain: Chain, is_head: bool
) -> dict[str, Any]:
    kind, tag = edge.partitioning.kind, None if edge.tag is None else edge.tag.tag_id
    if is_head:
        # The builder might have changed the user's partitioning, for example to rebalance behind a source.
        exchanges = [physical.edges[number] for number in chain.inputs]
        kind = next(
            exchange.kind
            for exchange in exchanges
            if _producer(physical, exchange.from_chain, exchange.from_operator) == logical.nodes[edge.node].uid
            and (exchange.tag, exchange.port) == (tag, edge.port)
        )
    entry: dict[str, Any] = {
        "id": edge.node,
        "ship_strategy": ship_strategy(kind),
        "exchange": is_head,
        "side": "second" if edge.port else "first",
    }
    if tag is not None:
        entry["side_output"] = tag
    return entry


def _producer(physical: PhysicalGraph, chain: int, place: int | None) -> str | None:
    producer = physical.chains[chain]
    return producer.source_uid if place is None else producer.operators[place].uid


def _type_name(declared: Any) -> str:
    return declared.__qualname__ if isinstance(declared, type) else str(declared)
