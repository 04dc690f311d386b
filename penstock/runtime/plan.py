"""The program as tasks see it: chains of operators and the edges between them. `penstock.graph` builds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import SourceLocation


@dataclass(kw_only=True)
class ChainedOperator:
    """One operator of a chain. `parent` is the position of its predecessor in the chain; None for the head."""

    uid: str
    name: str
    kind: str
    parent: int | None
    keyed: bool
    pickled: bytes
    output_type: bytes | None
    """The declared type, pickled, to check results against; None if the user declared none. Hints are not checked."""
    assigns_time: bool = False
    """Whether it generates watermarks; it ignores those of its input."""
    idle_timeout_ms: int | None = None
    parent_tag: str | None = None
    """The side output of the parent that it reads; None for the main output."""
    location: SourceLocation | None = None
    """The user's line that declared it."""


@dataclass(kw_only=True)
class Edge:
    """An exchange from an operator of one chain to the head of another."""

    id: int
    from_chain: int
    from_operator: int | None
    """Position in the chain; None if the source itself feeds the edge."""
    to_chain: int
    kind: str
    pickled_key: bytes | None = None
    """(selector, key type) of a key edge, (selector, partitioner) of a custom one."""
    pickled_type: bytes | None = None
    """The declared or hinted type of the records; None for pickled records."""
    tag: str | None = None
    """The side output that feeds it; None for the main output."""
    port: int = 0
    """The index of the input that it feeds, for a two-input operator."""
    location: SourceLocation | None = None
    """The user's line that chose the partitioning; None if no line did."""


@dataclass(kw_only=True)
class Chain:
    id: int
    level: int
    parallelism: int
    """Number of subtasks; 0 for a source's chain, because Spark chooses the number of its tasks."""
    max_parallelism: int
    tasks: int = 0
    """The most tasks that read a source: its own parallelism, or that of the job. A collection is read by one."""
    own_parallelism: bool = False
    """Whether the user set the parallelism of one of its operators."""
    operators: list[ChainedOperator] = field(default_factory=list)
    source_uid: str | None = None
    source_name: str = ""
    source_location: SourceLocation | None = None
    reader: str | None = None
    copied: bool = False
    """Whether Spark streams a copy of its records made by the job: those of a collection or a batch DataFrame."""
    gives_time: bool = False
    """Whether the source itself assigns timestamps and emits watermarks."""
    dead_letters: bool = False
    """Whether records that the source cannot decode go to a side output, the only one that a source has."""
    pickled_source: bytes | None = None
    """A source in Python, which the tasks read."""
    inputs: list[int] = field(default_factory=list)
    """Edge ids."""
    outputs: list[int] = field(default_factory=list)
    first_target: int = 0

    def give_time(self) -> None:
        """Use the source's own timestamps and watermarks."""
        self.gives_time = True

    def add(self, operator: ChainedOperator, own_parallelism: bool) -> None:
        """Append an operator. `own_parallelism`: whether the user set its parallelism."""
        self.operators.append(operator)
        self.own_parallelism |= own_parallelism

    @property
    def name(self) -> str:
        names = [self.source_name] if self.source_uid is not None else []
        return " -> ".join(names + [operator.name for operator in self.operators])


class Plan(Protocol):
    """The part of the physical graph (`penstock.graph.physical`) that a task needs."""

    chains: list[Chain]
    edges: list[Edge]
    levels: list[list[int]]
    job_parameters: dict[str, str]
    buffer_bytes: int
    timed: bool
    batch: bool

    def targets(self, level: int) -> int: ...
