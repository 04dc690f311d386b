"""The logical graph: what the user's program says, operator by operator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.common.names import check_name
from penstock.common.source_locations import calling_location
from penstock.errors import PenstockError, SourceLocation
from penstock.runtime.operators import Operator
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.sink_operators import SinkFunctionOperator, SinkOperator

FORWARD, KEY, REBALANCE, RESCALE, SHUFFLE = "forward", "key", "rebalance", "rescale", "shuffle"
BROADCAST, GLOBAL, CUSTOM = "broadcast", "global", "custom"


class GraphError(PenstockError):
    """The program cannot be run as it is written; the message names the operators."""


def check_positive(number: int, what: str) -> None:
    """Raise GraphError unless a number is an integer of at least 1."""
    if not isinstance(number, int) or number < 1:
        raise GraphError(
            f"The {what} must be a whole number of at least 1, not {number!r}.",
            fix="Give such a number, or leave the call out.",
        )


@dataclass(frozen=True)
class Partitioning:
    """How records of an edge choose their target. Key and custom edges carry the user's functions."""

    kind: str
    selector: Any = None
    key_type: Any = None
    partitioner: Any = None
    explicit: bool = False
    """Whether the user asked for `forward`, and so for equal parallelism."""
    location: SourceLocation | None = field(default=None, compare=False)
    """The user's line that asked for it."""


@dataclass(frozen=True)
class Input:
    node: int
    partitioning: Partitioning
    tag: OutputTag | None = None
    """The side output that is read; None for the main output."""
    port: int = 0
    """0 or 1: which input of a two-input operator it is."""


@dataclass
class SourceSpec:
    """Where records enter. `reader` says how what Spark reads becomes records."""

    reader: str
    """`rows`: one record per Spark row; `chunks`: pickled lists of records, written by this driver; `splits`: which
    parts of a Python source to read."""
    origin: Any
    """A list of records for `chunks`, a Spark DataFrame for `rows`, a `connectors.Source` for `splits`."""
    bounded: bool
    dead_letters: OutputTag | None = None
    """The side output for what the source cannot decode; None where that fails the job."""


@dataclass
class Node:
    """One operator or source as the user declared it."""

    id: int
    name: str
    inputs: list[Input] = field(default_factory=list)
    operator: Operator | None = None
    source: SourceSpec | None = None
    given_uid: str | None = None
    parallelism: int | None = None
    """As given on the operator; None means the environment's."""
    max_parallelism: int | None = None
    chaining: str = "always"
    """`always`; `head`: starts a new chain; `never`: is chained to nothing."""
    slot_sharing_group: str | None = None
    output_type: Any = None
    """As declared, or a `Hinted` one from the function's annotation."""
    description: str | None = None
    """Shown in the plan instead of the name."""
    uid: str = ""
    """Given or derived; set by `resolve_uids`."""
    location: SourceLocation | None = None
    """The user's line that declared it."""
    of_source: bool = False
    """Whether it is a part of the source that it reads: what the user says of this stream is said of the source."""

    @property
    def is_sink(self) -> bool:
        """Return whether the node is a sink."""
        return isinstance(self.operator, (SinkOperator, SinkFunctionOperator))

    # -- what the program says of it -----------------------------------------------------------------------------------

    def set_name(self, name: str) -> None:
        self.name = check_name(name, f"The name of {self._kind()}", GraphError)

    def set_uid(self, uid: str) -> None:
        self.given_uid = check_name(uid, "A uid", GraphError)

    def set_description(self, description: str) -> None:
        self.description = check_name(description, f"The description of {self._kind()}", GraphError)

    def set_parallelism(self, parallelism: int) -> None:
        check_positive(parallelism, "parallelism")
        if self.source is not None:
            raise GraphError(
                f"The parallelism of source '{self.name}' is Spark's to choose: it has one task per input partition."
            )
        self.parallelism = parallelism

    def set_max_parallelism(self, max_parallelism: int) -> None:
        check_positive(max_parallelism, "max parallelism")
        self.max_parallelism = max_parallelism

    def start_new_chain(self) -> None:
        self.chaining = "head"

    def disable_chaining(self) -> None:
        self.chaining = "never"

    def set_slot_sharing_group(self, slot_sharing_group: str) -> None:
        self.slot_sharing_group = check_name(str(slot_sharing_group), "A slot sharing group", GraphError)

    def make_part_of_source(self) -> None:
        """What the program says of this operator from now on, it says of the source before it."""
        self.of_source = True

    def _kind(self) -> str:
        return "a sink" if self.is_sink else "an operator"


class LogicalGraph:
    """All nodes of one program, in the order they were declared."""

    def __init__(self, first_id: int = 0) -> None:
        self.nodes: dict[int, Node] = {}
        self._next_id = first_id

    def add(self, name: str, **fields: Any) -> Node:
        check_name(name, "The name of an operator", GraphError)
        node = Node(self._next_id, name, location=calling_location(), **fields)
        self._next_id += 1
        self.nodes[node.id] = node
        return node

    def following(self) -> LogicalGraph:
        """An empty graph for the environment's next program. Its ids go on, so that it can adopt nodes of this one."""
        return LogicalGraph(self._next_id)

    def adopt(self, graph: LogicalGraph, numbers: Iterable[int]) -> None:
        """Take over nodes of an earlier program, with all they read from, as copies: that program may still run."""
        for number in numbers:
            if number not in self.nodes:
                node = replace(graph.nodes[number])
                self.adopt(graph, (edge.node for edge in node.inputs))
                self.nodes[number] = node

    def derived_uids(self) -> frozenset[str]:
        """The uids that nobody gave."""
        return frozenset(node.uid for node in self.nodes.values() if node.given_uid is None)

    def sinks(self) -> dict[str, Any]:
        """The driver's half of every sink, by operator uid."""
        nodes = self.nodes.values()
        return {node.uid: node.operator.sink for node in nodes if isinstance(node.operator, SinkOperator)}

    def in_order(self) -> Iterator[Node]:
        """Every node after all its inputs. Raises GraphError on a cycle."""
        done: set[int] = set()
        path: list[int] = []

        def visit(number: int) -> Iterator[Node]:
            if number in done:
                return
            if number in path:
                names = [f"'{self.nodes[n].name}'" for n in [*path[path.index(number) :], number]]
                raise GraphError(f"The program has a cycle: {' -> '.join(names)}. Records may only flow forward.")
            path.append(number)
            for edge in self.nodes[number].inputs:
                yield from visit(edge.node)
            path.pop()
            done.add(number)
            yield self.nodes[number]

        for number in sorted(self.nodes):
            yield from visit(number)

    def resolve_uids(self) -> list[Node]:
        """Give every node its uid and return those whose uid had to be derived. Raises on equal uids."""
        seen: dict[str, Node] = {}
        derived = []
        for node in self.in_order():
            if node.given_uid is not None:
                node.uid = node.given_uid
            else:
                node.uid = self._derive(node, seen)
                derived.append(node)
            if node.uid in seen:
                raise GraphError(
                    f"Operators '{seen[node.uid].name}' and '{node.name}' have the same uid '{node.uid}'.",
                    fix="State is addressed by uid: give each operator its own.",
                    locations=(node.location, seen[node.uid].location),
                )
            seen[node.uid] = node
        return derived

    def _derive(self, node: Node, seen: dict[str, Node]) -> str:
        # From the shape of the program alone, so that the same program gives the same uids in every process.
        kind = node.operator.kind if node.operator is not None else "Source"
        shape = [kind, node.name]
        for edge in node.inputs:
            shape += [edge.partitioning.kind, self.nodes[edge.node].uid]
            if edge.tag is not None:
                shape.append(f"tag {edge.tag.tag_id}")
            if edge.port:
                shape.append(f"port {edge.port}")
        number = 0
        while True:
            text = "\0".join([*shape, str(number)])
            uid = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            if uid not in seen:
                return uid
            number += 1
