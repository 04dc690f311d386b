"""The plan of a program that does not run, in the form of Flink's REST API: one node per chain of operators."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.driver.vertices import vertex_id_of
from penstock.rest.contract import Input, JobPlanInfo, Node, Plan


def plan_info(name: str, plan: str) -> JobPlanInfo:
    """Return the plan that `Gateway.plan` gives as JSON."""
    given = msgspec.json.decode(plan)
    nodes: list[dict[str, Any]] = given["nodes"]
    chains: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        chains.setdefault(str(node["chain"]), []).append(node)
    chain_of = {node["id"]: chain for chain, members in chains.items() for node in members}
    ids = {chain: vertex_id_of(members[0]["uid"]) for chain, members in chains.items()}
    return JobPlanInfo(
        plan=Plan(
            jid="0" * 32,
            name=name,
            type="BATCH" if given["batch"] else "STREAMING",
            nodes=[
                Node(
                    id=ids[chain],
                    operator="",
                    # That of a source is the job's, which only Spark knows if no setting gives it.
                    parallelism=members[0]["parallelism"] or given["parallelism"] or -1,
                    operator_strategy="",
                    description=" -> ".join(node["contents"] for node in members),
                    optimizer_properties={},
                    inputs=[
                        Input(
                            id=ids[chain_of[before["id"]]],
                            num=number,
                            exchange="blocking",
                            ship_strategy=before["ship_strategy"],
                            local_strategy="",
                            caching="",
                        )
                        for number, before in enumerate(_exchanges(members))
                    ],
                )
                for chain, members in chains.items()
            ],
        )
    )


def _exchanges(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [before for node in members for before in node.get("predecessors", []) if before["exchange"]]
