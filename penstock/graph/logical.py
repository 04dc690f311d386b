"""The logical graph: the user's program, operator by operator."""

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
from penstock.runtime.state_operators import QueryableStateOperator

FORWARD, KEY, REBALANCE, RESCALE, SHUFFLE = "forward", "key", "rebalance", "rescale", "shuffle"
BROADCAST, GLOBAL, CUSTOM = "broadcast", "global", "custom"


class GraphError(PenstockError):
    """The program cannot run as written; the message names the operators.

    Operator action: change the program at the line that the message shows.
    """


def check_positive(number: int, what: str) -> None:
    """Raise GraphError unless a number is an int of at least 1."""
    if not isinstance(number, int) or number < 1:
        raise GraphError(
            f"The {what} must be an int of at least 1, not {number!r}.",
            fix="Pass such a number, or remove the call.",
        )


@dataclass(frozen=True)
class Partitioning:
    """How records of an edge are assigned to targets. Key and custom edges carry the user's functions."""

    kind: str
    selector: Any = None
    key_type: Any = None
    partitioner: Any = None
    explicit: bool = False
    """Whether the user called `forward`, which requires equal parallelism."""
    location: SourceLocation | None = field(default=None, compare=False)
    """The user's line that declared it."""


@dataclass(frozen=True)
class Input:
    node: int
    partitioning: Partitioning
    tag: OutputTag | None = None
    """The side output that is read; None for the main output."""
    port: int = 0
    """0 or 1: the index of the input of a two-input operator."""


@dataclass
class SourceSpec:
    """A source of the program. `reader` determines how Spark's input is turned into records."""

    reader: str
    """`rows`: one record per Spark row; `chunks`: pickled lists of records, written by this driver; `splits`: the parts
    of a Python source to read."""
    origin: Any
    """A list of records for `chunks`, a Spark DataFrame for `rows`, a `connectors.Source` for `splits`."""
    bounded: bool
    dead_letters: OutputTag | None = None
    """The side output for records that the source cannot decode; None if they fail the job."""


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
    """As set on the operator; None means the environment's parallelism."""
    max_parallelism: int | None = None
    chaining: str = "always"
    """`always`; `head`: starts a new chain; `never`: is never chained."""
    slot_sharing_group: str | None = None
    output_type: Any = None
    """The declared type, or a `Hinted` type from the function's annotation."""
    description: str | None = None
    """Shown in the plan instead of the name."""
    uid: str = ""
    """The given or derived uid; set by `resolve_uids`."""
    location: SourceLocation | None = None
    """The user's line that declared it."""
    of_source: bool = False
    """Whether it is part of the source that it reads: the user's settings of this stream apply to the source."""

    @property
    def is_sink(self) -> bool:
        """Whether the node is a sink."""
        return isinstance(self.operator, (SinkOperator, SinkFunctionOperator, QueryableStateOperator))

    # -- settings of the program ---------------------------------------------------------------------------------------

    def set_name(self, name: str) -> None:
        self.name = check_name(name, f"The name of {self._kind()}", GraphError)

    def set_uid(self, uid: str) -> None:
        self.given_uid = check_name(uid, "A uid", GraphError)

    def set_description(self, description: str) -> None:
        self.description = check_name(description, f"The description of {self._kind()}", GraphError)

    def set_parallelism(self, parallelism: int) -> None:
        check_positive(parallelism, "parallelism")
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
        """Apply later settings of this operator to the source before it."""
        self.of_source = True

    def _kind(self) -> str:
        return "a sink" if self.is_sink else "an operator"


class LogicalGraph:
    """All nodes of one program, in order of declaration."""

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
        """Return an empty graph for the next program. Its ids continue, so it can adopt nodes of this one."""
        return LogicalGraph(self._next_id)

    def adopt(self, graph: LogicalGraph, numbers: Iterable[int]) -> None:
        """Copy nodes of an earlier program, which can still be running, with all their inputs."""
        for number in numbers:
            if number not in self.nodes:
                node = replace(graph.nodes[number])
                self.adopt(graph, (edge.node for edge in node.inputs))
                self.nodes[number] = node

    def derived_uids(self) -> frozenset[str]:
        """Return the uids that the user did not set."""
        return frozenset(node.uid for node in self.nodes.values() if node.given_uid is None)

    def sinks(self) -> dict[str, Any]:
        """Return the sink of every sink operator, by uid. The driver commits through them."""
        nodes = self.nodes.values()
        return {node.uid: node.operator.sink for node in nodes if isinstance(node.operator, SinkOperator)}

    def in_order(self) -> Iterator[Node]:
        """Yield every node after all its inputs. Raises GraphError on a cycle."""
        done: set[int] = set()
        path: list[int] = []

        def visit(number: int) -> Iterator[Node]:
            if number in done:
                return
            if number in path:
                names = [f"'{self.nodes[n].name}'" for n in [*path[path.index(number) :], number]]
                raise GraphError(f"The program has a cycle: {' -> '.join(names)}. Records can only flow forward.")
            path.append(number)
            for edge in self.nodes[number].inputs:
                yield from visit(edge.node)
            path.pop()
            done.add(number)
            yield self.nodes[number]

        for number in sorted(self.nodes):
            yield from visit(number)

    def resolve_uids(self) -> list[Node]:
        """Set the uid of every node, and return the nodes with a derived uid. Raises GraphError on duplicate uids."""
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
                    fix="Set a different uid on one of them: state is addressed by uid.",
                    locations=(node.location, seen[node.uid].location),
                )
            seen[node.uid] = node
        return derived

    def _derive(self, node: Node, seen: dict[str, Node]) -> str:
        # Derived from the shape of the program alone: the same program has the same uids in every process.
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
