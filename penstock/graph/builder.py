"""Builds the physical graph that is shipped to the tasks: chains, levels and targets.

All chains of one depth share one Spark stage, a level. This keeps every epoch plan linear; Spark would run a stage that
feeds two exchanges twice. Within a level, `target` is the index of a (chain, subtask) pair. An edge that skips a level
passes through it. Level 0 has the sources' first chains, which run once per Spark partition inside the streaming plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common.class_collector import ClassCollector
from penstock.common.options.program import MOST_KEY_GROUPS, SEGMENT_SIZE
from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.errors import PenstockError
from penstock.graph.inspect import KEYED_STATE, SUBTASK_IDENTITY, asks_context_for
from penstock.graph.logical import CUSTOM, FORWARD, KEY, REBALANCE, GraphError, Input, LogicalGraph, Node
from penstock.graph.physical import PhysicalGraph
from penstock.graph.ship import dump_named
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.context import KEY_BY_FIX, not_keyed
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.plan import Chain, ChainedOperator, Edge
from penstock.state.key_groups import ParallelismError, check_parallelism, default_max_parallelism
from penstock.state.serializers import Hinted


def build(
    graph: LogicalGraph,
    parallelism: int,
    max_parallelism: int | None = None,
    chaining: bool = True,
    job_parameters: dict[str, str] | None = None,
    buffer_bytes: int = SEGMENT_SIZE.default,
    batch: bool = False,
    own_modules: Iterable[str] = (),
    periodic_watermarks: bool = False,
) -> PhysicalGraph:
    """Check the program and split it into chains. Everything that can fail before Spark starts fails here.

    `own_modules`: modules whose classes and functions are pickled by value, in addition to `__main__`.
    `periodic_watermarks`: whether watermarks follow at the end of each epoch.
    """
    for node in graph.nodes.values():
        if isinstance(node.operator, TimestampsOperator):
            node.operator.emit_at_epoch_ends(periodic_watermarks)
    graph.resolve_uids()
    builder = _Builder(graph, parallelism, max_parallelism, chaining, batch, ClassCollector(own_modules))
    return builder.build(dict(job_parameters or {}), buffer_bytes)


@dataclass
class _Builder:
    graph: LogicalGraph
    parallelism: int
    max_parallelism: int | None
    chaining: bool
    batch: bool
    classes: ClassCollector

    def __post_init__(self) -> None:
        self.assigns_time = any(isinstance(node.operator, TimestampsOperator) for node in self.graph.nodes.values())
        self.chains: list[Chain] = []
        self.edges: list[Edge] = []
        self.position: dict[int, tuple[Chain, int | None]] = {}
        """Maps a node id to its chain and the position in it; the position of a source is None."""

    def build(self, job_parameters: dict[str, str], buffer_bytes: int) -> PhysicalGraph:
        for node in self.graph.in_order():
            if node.source is not None:
                self._add_source(node)
                continue
            try:
                self._add_operator(node)
            except PenstockError as error:
                if node.location is not None:
                    error.locate(node.location)
                raise
        if not self.chains:
            raise GraphError(
                "The program has no source. Each call of execute() leaves the environment empty.",
                fix="Add a source, for example with env.from_collection(...) or env.from_spark(...).",
            )
        depth = max(chain.level for chain in self.chains)
        levels = [[chain.id for chain in self.chains if chain.level == level] for level in range(depth + 1)]
        timed = any(chain.gives_time or any(op.assigns_time for op in chain.operators) for chain in self.chains)
        graph = PhysicalGraph(
            chains=self.chains,
            edges=self.edges,
            levels=levels,
            job_parameters=job_parameters,
            buffer_bytes=buffer_bytes,
            timed=timed,
            batch=self.batch,
        )
        graph.place_targets()
        graph.program = self.classes.pack()
        return graph

    def _add_source(self, node: Node) -> None:
        assert node.source is not None
        reader, origin = node.source.reader, node.source.origin
        copied = reader == "chunks" or not getattr(origin, "isStreaming", True)
        if reader == "splits" and not self.assigns_time:
            origin = origin.without_time()
        if node.source.dead_letters is not None:
            self._check_read(node, node.source.dead_letters)
        if reader == "chunks":
            for kind in dict.fromkeys(map(type, origin)):
                dump_named(self.classes, kind, kind, node.name, node.uid, node.location)
        pickled = dump_named(self.classes, origin, origin, node.name, node.uid) if reader == "splits" else None
        chain = Chain(
            id=len(self.chains),
            level=0,
            parallelism=0,
            max_parallelism=0,
            tasks=node.parallelism or (1 if reader == "chunks" else self.parallelism),
            own_parallelism=node.parallelism is not None,
            source_uid=node.uid,
            source_name=node.name,
            source_location=node.location,
            reader=reader,
            copied=copied,
            gives_time=getattr(origin, "gives_time", False),
            dead_letters=node.source.dead_letters is not None,
            pickled_source=pickled,
        )
        self.chains.append(chain)
        self.position[node.id] = chain, None

    def _check_read(self, node: Node, tag: OutputTag) -> None:
        if not any(edge == (node.id, tag) for other in self.graph.nodes.values() for edge in _sides(other)):
            raise GraphError(
                f"Source '{node.name}' (uid '{node.uid}') has dead_letters={tag!r}, but nothing reads that side "
                f"output: the records would be lost.",
                fix=f"Read it: stream.get_side_output({tag!r}).print(), or write it with sink_to(...).",
                locations=(node.location,),
            )

    def _add_operator(self, node: Node) -> None:
        operator = node.operator
        assert operator is not None
        self._check(node)
        parallelism = node.parallelism or self.parallelism
        if self._chains_to_input(node, parallelism):
            chain, parent = self.position[node.inputs[0].node]
        else:
            chain, parent = self._head_of_new_chain(node, parallelism), None
        operator.declare(node.name, node.uid, node.location, self.batch)
        chained = ChainedOperator(
            uid=node.uid,
            name=node.name,
            kind=operator.kind,
            parent=parent,
            keyed=operator.keyed,
            pickled=dump_named(
                self.classes, operator, getattr(operator, "sink", operator.function), node.name, node.uid
            ),
            output_type=None if isinstance(node.output_type, Hinted) else self._dump_type(node.output_type, node),
            assigns_time=isinstance(operator, TimestampsOperator),
            idle_timeout_ms=operator.strategy.idle_timeout_ms if isinstance(operator, TimestampsOperator) else None,
            parent_tag=_tag_id(node.inputs[0]) if parent is not None or chain.source_uid is not None else None,
            location=node.location,
        )
        chain.add(chained, node.parallelism is not None)
        self.position[node.id] = chain, len(chain.operators) - 1

    def _check(self, node: Node) -> None:
        operator = node.operator
        assert operator is not None
        if not operator.keyed:
            getter = asks_context_for(operator.function, KEYED_STATE)
            if getter is not None:
                raise GraphError(not_keyed(node.name, node.uid, f"keyed state (open() calls {getter})"), fix=KEY_BY_FIX)

    def _chains_to_input(self, node: Node, parallelism: int) -> bool:
        if len(node.inputs) != 1 or node.inputs[0].partitioning.kind != FORWARD:
            return False
        before, _ = self.position[node.inputs[0].node]
        if node.chaining != "always" or self.graph.nodes[node.inputs[0].node].chaining == "never":
            return False
        if before.level == 0:
            # A source's partitions are not subtasks: an operator that needs its subtask index starts a separate task.
            assert node.operator is not None
            if not self.chaining or node.parallelism is not None:
                return False
            if node.operator.stateful:
                return False
            return asks_context_for(node.operator.function, SUBTASK_IDENTITY) is None
        return self.chaining and before.parallelism == parallelism

    def _head_of_new_chain(self, node: Node, parallelism: int) -> Chain:
        level = 1 + max(self.position[edge.node][0].level for edge in node.inputs)
        chain = Chain(
            id=len(self.chains),
            level=level,
            parallelism=parallelism,
            max_parallelism=node.max_parallelism
            or self.max_parallelism
            or default_max_parallelism(min(parallelism, MOST_KEY_GROUPS)),
        )
        self.chains.append(chain)
        try:
            check_parallelism(parallelism, chain.max_parallelism)
        except ParallelismError as error:
            problem = f"Operator '{node.name}' (uid '{node.uid}'): {error.statement()}"
            raise GraphError(problem, fix=error.fix) from None
        for edge in node.inputs:
            before, place = self.position[edge.node]
            kind = edge.partitioning.kind
            if (
                kind == FORWARD
                and before.level > 0
                and before.parallelism != parallelism
                and edge.partitioning.explicit
            ):
                raise GraphError(
                    f"forward() before '{node.name}' (uid '{node.uid}') needs equal parallelism, but it is "
                    f"{before.parallelism} upstream and {parallelism} downstream.",
                    fix="Use rescale() or rebalance(), or set the same parallelism on both operators.",
                    locations=(edge.partitioning.location,),
                )
            if kind == FORWARD and (before.level == 0 or before.parallelism != parallelism):
                kind = REBALANCE
            pickled_key = None
            if kind == KEY:
                key = (edge.partitioning.selector, edge.partitioning.key_type)
                name = f"key selector of {node.name}"
                pickled_key = dump_named(self.classes, key, key[0], name, node.uid, edge.partitioning.location)
            elif kind == CUSTOM:
                custom = (edge.partitioning.selector, edge.partitioning.partitioner)
                name = f"partitioner of {node.name}"
                pickled_key = dump_named(self.classes, custom, custom[1], name, node.uid, edge.partitioning.location)
            exchange = Edge(
                id=len(self.edges),
                from_chain=before.id,
                from_operator=place,
                to_chain=chain.id,
                kind=kind,
                pickled_key=pickled_key,
                pickled_type=self._edge_type(edge),
                tag=_tag_id(edge),
                port=edge.port,
                location=edge.partitioning.location,
            )
            self.edges.append(exchange)
            before.outputs.append(exchange.id)
            chain.inputs.append(exchange.id)
        return chain

    def _edge_type(self, edge: Input) -> bytes | None:
        node = self.graph.nodes[edge.node]
        declared = node.output_type if edge.tag is None else edge.tag.declared
        if isinstance(declared, Hinted) and not declared.pays_in_exchange():
            return None
        return self._dump_type(declared, node)

    def _dump_type(self, declared: Any, node: Node) -> bytes | None:
        if declared is None or isinstance(declared, PickledBytesTypeInfo):
            return None
        return dump_named(self.classes, declared, declared, f"output type of {node.name}", node.uid)


def _sides(node: Node) -> list[tuple[int, OutputTag]]:
    return [(edge.node, edge.tag) for edge in node.inputs if edge.tag is not None]


def _tag_id(edge: Input) -> str | None:
    return None if edge.tag is None else edge.tag.tag_id
