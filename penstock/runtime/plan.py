"""What tasks know of the program: chains of operators, and the edges between them. `penstock.graph` builds them."""

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
    """The declared type, pickled, to hold results to; None where the user declared none. A hint holds nobody."""
    assigns_time: bool = False
    """Whether it makes watermarks; what it is given counts for nothing."""
    idle_timeout_ms: int | None = None
    parent_tag: str | None = None
    """The side output of the parent that it reads; None for the main one."""


@dataclass(kw_only=True)
class Edge:
    """An exchange from an operator of one chain to the head of another."""

    id: int
    from_chain: int
    from_operator: int | None
    """Position in the chain; None where the source itself feeds the edge."""
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


@dataclass(kw_only=True)
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

    def give_time(self) -> None:
        """Let the source's records come with its own timestamps and watermarks."""
        self.gives_time = True

    def add(self, operator: ChainedOperator, own_parallelism: bool) -> None:
        """Append an operator. `own_parallelism`: whether the user gave it one."""
        self.operators.append(operator)
        self.own_parallelism |= own_parallelism

    @property
    def name(self) -> str:
        names = [self.source_name] if self.source_uid is not None else []
        return " -> ".join(names + [operator.name for operator in self.operators])


class Plan(Protocol):
    """What a task needs of the physical graph (`penstock.graph.physical`), which it is a part of."""

    chains: list[Chain]
    edges: list[Edge]
    levels: list[list[int]]
    job_parameters: dict[str, str]
    buffer_bytes: int
    timed: bool
    batch: bool

    def targets(self, level: int) -> int: ...
