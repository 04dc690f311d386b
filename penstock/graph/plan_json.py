"""The execution plan as JSON, in the shape of Flink's plan visualizer, with uid, chain and level added."""

from __future__ import annotations

import json
from typing import Any

from penstock.graph.logical import Input, LogicalGraph
from penstock.runtime.plan import PhysicalGraph

_STRATEGY = {"key": "HASH"}
"""Flink's names; the others are the kind in capitals."""


def execution_plan(logical: LogicalGraph, physical: PhysicalGraph) -> str:
    placed: dict[str, tuple[int, bool]] = {}
    for chain in physical.chains:
        if chain.source_uid is not None:
            placed[chain.source_uid] = chain.id, True
        for place, operator in enumerate(chain.operators):
            placed[operator.uid] = chain.id, place == 0 and chain.source_uid is None
    kinds = {
        (edge.to_chain, _producer_uid(physical, edge.from_chain, edge.from_operator), edge.tag, edge.port): edge.kind
        for edge in physical.edges
    }
    nodes = []
    for node in logical.in_order():
        chain_id, is_head = placed[node.uid]
        chain = physical.chains[chain_id]
        entry: dict[str, Any] = {
            "id": node.id,
            "uid": node.uid,
            "type": f"Source: {node.name}" if node.source is not None else node.name,
            "pact": "Data Source" if node.source is not None else "Operator",
            "contents": node.description or node.name,
            "parallelism": chain.parallelism or None,
            "max_parallelism": chain.max_parallelism or None,
            "chain": chain_id,
            "level": chain.level,
        }
        if node.slot_sharing_group is not None:
            entry["slot_sharing_group"] = node.slot_sharing_group
        if node.inputs:
            entry["predecessors"] = [
                {
                    "id": edge.node,
                    "ship_strategy": _strategy(
                        kinds[chain_id, logical.nodes[edge.node].uid, _tag(edge), edge.port]
                        if is_head
                        else edge.partitioning.kind
                    ),
                    "side": "second" if index else "first",
                }
                for index, edge in enumerate(node.inputs)
            ]
        nodes.append(entry)
    return json.dumps({"nodes": nodes}, indent=2)


def _producer_uid(physical: PhysicalGraph, chain: int, place: int | None) -> str | None:
    producer = physical.chains[chain]
    return producer.source_uid if place is None else producer.operators[place].uid


def _tag(edge: Input) -> str | None:
    return None if edge.tag is None else edge.tag.tag_id


def _strategy(kind: str) -> str:
    return _STRATEGY.get(kind, kind.upper())
