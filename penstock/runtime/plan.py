"""The physical graph: chains, levels and targets, as it is shipped to the tasks. `penstock.graph` builds it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.common.options.program import SEGMENT_SIZE
from penstock.errors import SourceLocation


@dataclass
class ChainedOperator:
    """One operator of a chain. `parent` is its place's predecessor in the chain; None for the head."""

    uid: str
    name: str
    kind: str
    parent: int | None
    keyed: bool
    pickled: bytes
    output_type: bytes | None
    """The declared type, pickled, to hold results to; None where the user declared none. A hint holds nobody."""
    assigns_time: bool = False
    """Whether it makes watermarks; what it is given counts for nothing."""
    idle_timeout_ms: int | None = None
    parent_tag: str | None = None
    """The side output of the parent that it reads; None for the main one."""


@dataclass
class Edge:
    """An exchange from an operator of one chain to the head of another."""

    id: int
    from_chain: int
    from_operator: int | None
    """SourceLocation in the chain; None where the source itself feeds the edge."""
    to_chain: int
    kind: str
    pickled_key: bytes | None = None
    """(selector, key type) of a key edge, (selector, partitioner) of a custom one."""
    pickled_type: bytes | None = None
    """Declared type of the records, or the hint of it; None for pickled ones."""
    tag: str | None = None
    """The side output that feeds it; None for the main one."""
    port: int = 0
    """Which input of a two-input operator it feeds."""
    location: SourceLocation | None = None
    """The user's line that said how records travel; None where none did."""


@dataclass
class Chain:
    id: int
    level: int
    parallelism: int
    """Number of subtasks; 0 for a source's chain, whose number is Spark's to choose."""
    max_parallelism: int
    own_parallelism: bool = False
    """Whether the user gave an operator of it a parallelism of its own."""
    operators: list[ChainedOperator] = field(default_factory=list)
    source_uid: str | None = None
    source_name: str = ""
    source_location: SourceLocation | None = None
    reader: str | None = None
    copied: bool = False
    """Whether Spark streams a copy of its records that the job makes: those of a collection or a batch DataFrame."""
    gives_time: bool = False
    """Whether its records come with timestamps and watermarks of the source's own."""
    dead_letters: bool = False
    """Whether what the source cannot decode goes to a side output, the only one that a source has."""
    pickled_source: bytes | None = None
    """A source in Python, which its tasks read from."""
    inputs: list[int] = field(default_factory=list)
    """Edge ids."""
    outputs: list[int] = field(default_factory=list)
    first_target: int = 0

    @property
    def name(self) -> str:
        names = [self.source_name] if self.source_uid is not None else []
        return " -> ".join(names + [operator.name for operator in self.operators])


@dataclass
class PhysicalGraph:
    chains: list[Chain]
    edges: list[Edge]
    levels: list[list[int]]
    """Chain ids by level; level 0 holds the sources' chains."""
    job_parameters: dict[str, str] = field(default_factory=dict)
    buffer_bytes: int = SEGMENT_SIZE.default
    timed: bool = False
    """Whether records have event time: then timestamps and watermarks travel with them."""
    batch: bool = False
    """Whether it runs as a batch, in which there is no watermark but the last."""
    program: bytes = b""
    """The classes that tasks cannot import; a process enters them before it unpickles any part of the graph."""

    def rescaled(self, scale: Mapping[int, int]) -> PhysicalGraph:
        """The same graph with other numbers of subtasks, by chain. Chains and edges that do not change are shared."""
        if not scale:
            return self
        chains = [replace(chain, parallelism=scale[chain.id]) if chain.id in scale else chain for chain in self.chains]
        graph = replace(self, chains=chains)
        graph.place_targets()
        graph.edges = [
            replace(edge, kind="rebalance")
            if edge.kind == "forward" and chains[edge.from_chain].parallelism != chains[edge.to_chain].parallelism
            else edge
            for edge in self.edges
        ]
        return graph

    def place_targets(self) -> None:
        """Number the partitions of every level."""
        for level in self.levels[1:]:
            first = 0
            for number in level:
                if self.chains[number].first_target != first:
                    self.chains[number] = replace(self.chains[number], first_target=first)
                first += self.chains[number].parallelism

    def targets(self, level: int) -> int:
        """Number of partitions of a level's stage."""
        return sum(self.chains[number].parallelism for number in self.levels[level])

    def at_target(self, level: int, target: int) -> tuple[Chain, int]:
        """The chain and subtask that a partition of a level stands for."""
        for number in self.levels[level]:
            chain = self.chains[number]
            if chain.first_target <= target < chain.first_target + chain.parallelism:
                return chain, target - chain.first_target
        raise AssertionError(f"level {level} has no target {target}")

    def chains_by_uid(self) -> dict[str, Chain]:
        """The chain of each operator."""
        return {operator.uid: chain for chain in self.chains for operator in chain.operators}

    def sources(self) -> list[Chain]:
        return [self.chains[number] for number in self.levels[0]]

    def subtasks(self) -> list[tuple[int, int]]:
        """Every (chain, subtask) that must acknowledge an epoch, without the sources' chains."""
        return [
            (chain.id, subtask)
            for level in self.levels[1:]
            for chain in (self.chains[number] for number in level)
            for subtask in range(chain.parallelism)
        ]


def pack(graph: PhysicalGraph) -> bytes:
    """The graph as it travels to the tasks."""
    return pickle.dumps(graph, protocol=5)


def unpack(data: bytes) -> PhysicalGraph:
    """The graph in a task. Only for bytes that this job's own driver wrote."""
    return pickle.loads(data)  # type: ignore[no-any-return]
