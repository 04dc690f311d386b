"""The physical graph that is shipped to the tasks: chains, levels and targets. Built by `penstock.graph.builder`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.common.options.program import SEGMENT_SIZE
from penstock.runtime.plan import Chain, Edge


@dataclass(kw_only=True)
class PhysicalGraph:
    chains: list[Chain]
    edges: list[Edge]
    levels: list[list[int]]
    """Chain ids by level; level 0 has the sources' chains."""
    job_parameters: dict[str, str] = field(default_factory=dict)
    buffer_bytes: int = SEGMENT_SIZE.default
    timed: bool = False
    """Whether records have event time; if so, timestamps and watermarks travel with them."""
    batch: bool = False
    """Whether it runs as a batch, which only has the final watermark."""
    program: bytes = b""
    """The classes that tasks cannot import; a process registers them before it unpickles any part of the graph."""

    def rescaled(self, scale: Mapping[int, int]) -> PhysicalGraph:
        """Return the graph with a different parallelism for the given chains. Unchanged chains and edges are shared."""
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
        """Assign the partitions of every level to its chains."""
        for level in self.levels[1:]:
            first = 0
            for number in level:
                if self.chains[number].first_target != first:
                    self.chains[number] = replace(self.chains[number], first_target=first)
                first += self.chains[number].parallelism

    def give_time(self, chain: Chain) -> None:
        """Use the source's own timestamps and watermarks."""
        self.timed = True
        chain.give_time()

    def targets(self, level: int) -> int:
        """Return the number of partitions of a level's stage."""
        return sum(self.chains[number].parallelism for number in self.levels[level])

    def at_target(self, level: int, target: int) -> tuple[Chain, int]:
        """Return the chain and subtask of a partition of a level."""
        for number in self.levels[level]:
            chain = self.chains[number]
            if chain.first_target <= target < chain.first_target + chain.parallelism:
                return chain, target - chain.first_target
        raise AssertionError(f"level {level} has no target {target}")

    def chains_by_uid(self) -> dict[str, Chain]:
        """Return the chain of each operator, by uid."""
        return {operator.uid: chain for chain in self.chains for operator in chain.operators}

    def sources(self) -> list[Chain]:
        return [self.chains[number] for number in self.levels[0]]

    def subtasks(self) -> list[tuple[int, int]]:
        """Return every (chain, subtask) that must acknowledge an epoch, without the sources' chains."""
        return [
            (chain.id, subtask)
            for level in self.levels[1:]
            for chain in (self.chains[number] for number in level)
            for subtask in range(chain.parallelism)
        ]


def pack(graph: PhysicalGraph) -> bytes:
    """Serialize the graph for the tasks."""
    return pickle.dumps(graph, protocol=5)


def unpack(data: bytes) -> PhysicalGraph:
    """Deserialize the graph in a task. Only call this with bytes written by this job's own driver."""
    return pickle.loads(data)  # type: ignore[no-any-return]
