"""Vertices: the chains of a job's graph, as the REST interface shows them."""

from __future__ import annotations

import hashlib

from penstock.driver.job_snapshot import OperatorFacts, VertexInput, VertexSnapshot
from penstock.graph.physical import PhysicalGraph
from penstock.graph.plan_json import ship_strategy
from penstock.runtime.plan import Chain
from penstock.state.key_groups import default_max_parallelism


def first_uid(chain: Chain) -> str:
    """Return the uid of the source or of the first operator."""
    return chain.source_uid if chain.source_uid is not None else chain.operators[0].uid


def vertex_id(chain: Chain) -> str:
    """Return 32 hexadecimal digits that identify the chain in every run of the program."""
    return vertex_id_of(first_uid(chain))


def vertex_id_of(uid: str) -> str:
    """Return the id of the vertex whose source or first operator has this uid."""
    return hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()


def parallelism_of(chain: Chain, parallelism: int) -> int:
    """Return the number of subtasks.

    For a source it is its own parallelism, otherwise the job's `parallelism`: Spark chooses how many tasks read.
    """
    return chain.parallelism or (chain.tasks if chain.own_parallelism else max(1, parallelism))


def subtask_of(chain: Chain, task: int, parallelism: int) -> int:
    """Return the subtask that a task counts for. Tasks of a source have numbers of Spark's partitions."""
    return task if chain.parallelism else task % parallelism_of(chain, parallelism)


def vertices_of(graph: PhysicalGraph, parallelism: int) -> list[tuple[Chain, VertexSnapshot]]:
    """Return the chains in topological order, each with the facts that do not change while the job runs."""
    ids = [vertex_id(chain) for chain in graph.chains]
    return [
        (chain, _vertex(graph, chain, ids, parallelism))
        for chain in sorted(graph.chains, key=lambda chain: (chain.level, chain.id))
    ]


def _vertex(graph: PhysicalGraph, chain: Chain, ids: list[str], parallelism: int) -> VertexSnapshot:
    operators = [OperatorFacts(uid=each.uid, name=each.name, kind=each.kind) for each in chain.operators]
    if chain.source_uid is not None:
        operators.insert(0, OperatorFacts(uid=chain.source_uid, name=chain.source_name, kind="Source"))
    subtasks = parallelism_of(chain, parallelism)
    edges = [graph.edges[number] for number in chain.inputs]
    return VertexSnapshot(
        id=ids[chain.id],
        uid=first_uid(chain),
        name=f"Source: {chain.name}" if chain.source_uid is not None else chain.name,
        level=chain.level,
        parallelism=subtasks,
        max_parallelism=chain.max_parallelism or _most_key_groups(graph) or default_max_parallelism(subtasks),
        operators=operators,
        inputs=[VertexInput(vertex=ids[edge.from_chain], strategy=ship_strategy(edge.kind)) for edge in edges],
    )


def _most_key_groups(graph: PhysicalGraph) -> int:
    """Return the number of key groups of the job. A source has none, but Flink shows it for every vertex."""
    return max((chain.max_parallelism or 0 for chain in graph.chains), default=0)
