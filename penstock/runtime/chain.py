"""A chain of operators as one subtask runs it: opened once, rewired for each epoch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.runtime.checkpointed import Restored
from penstock.runtime.columns import plain_field
from penstock.runtime.context import RuntimeContext
from penstock.runtime.exchange import (
    Exchange,
    Hop,
    KeyExchange,
    Keying,
    Outlet,
    Records,
)
from penstock.runtime.failures import Party, party_of
from penstock.runtime.fan_out import Consumer, TypeCheck, discard, each_to, fan_out, with_copies
from penstock.runtime.metrics import MetricRegistry
from penstock.runtime.moment import Moment
from penstock.runtime.operators import Emit, Mark, Operator, load_operator, method_of
from penstock.runtime.partitions import (
    BroadcastExchange,
    CustomExchange,
    RoundRobinExchange,
    ShuffleExchange,
    SingleExchange,
    share_of,
)
from penstock.runtime.plan import Chain, Edge, Plan
from penstock.runtime.rows import (
    PICKLED,
    Codec,
    ExchangeRow,
    channel_of,
    edge_of,
    route_to,
)
from penstock.runtime.timers import StateClock
from penstock.runtime.typed_codec import declared_codec, hinted_codec
from penstock.state.key_groups import owner_of
from penstock.state.overlay import Overlay
from penstock.state.replica import StateHistory
from penstock.state.serializers import Hinted, serializer_for
from penstock.state.shares import Share


class Reported(NamedTuple):
    """The operator state in a chain's last snapshot, by uid."""

    lineage: str
    checkpoint: int
    states: dict[str, dict[str, Share]]


class ChainRun:
    """The operators of one chain and subtask, opened once and kept between epochs.

    After a failure the owner must drop it: its functions might hold the effects of half an epoch.
    """

    def __init__(self, graph: Plan, chain: Chain, subtask: int | None) -> None:
        self.graph = graph
        self.chain = chain
        self.subtask = subtask
        self._make()
        self.stateful = any(operator.stateful for operator in self.operators)
        self.reported: Reported | None = None
        """The last snapshot; None before the first one."""
        self.prepared_for: tuple[str, int] | None = None
        """The epoch that the chain was opened for and has not run yet: lineage and epoch number."""
        self.source = Party(chain.source_name, chain.source_uid or "", is_source=True, location=chain.source_location)
        self._edges = [graph.edges[number] for number in chain.outputs]
        self._keyings = {edge.id: _keying(graph, edge) for edge in self._edges if edge.kind == "key"}
        self._partitioners = {edge.id: _partitioner(graph, edge) for edge in self._edges if edge.kind == "custom"}
        self._codecs = {edge.id: _codec(edge) for edge in self._edges}
        self._input_codecs = {number: _codec(graph.edges[number]) for number in chain.inputs}
        self.moment = Moment()
        self._opened: list[Operator] = []
        self.letters: Emit = discard
        """Receives a source's dead letters."""

    def _make(self) -> None:
        chain = self.chain
        self.operators = [load_operator(chained.pickled) for chained in chain.operators]
        keyed = any(chained.keyed for chained in chain.operators)
        self.overlay = Overlay(chain.max_parallelism) if keyed else None
        self.metrics = [MetricRegistry(chained.name, chained.uid) for chained in chain.operators]

    def is_current(self, lineage: str, checkpoint: int, history: StateHistory) -> bool:
        """Return whether the operators' in-memory state is the state that this checkpoint holds for this subtask.

        Spark assigns subtasks to workers freely, so the operators might have run another attempt of that epoch, or
        nothing since an earlier epoch. The manifest records one attempt of an epoch; another attempt might have had
        different results.
        """
        reported, subtask = self.reported, self.subtask
        return (
            reported is not None
            and subtask is not None
            and (reported.lineage, reported.checkpoint) == (lineage, checkpoint)
            and all(
                history.holds(uid, subtask, self.chain.parallelism, states) for uid, states in reported.states.items()
            )
        )

    def renew(self) -> None:
        """Replace functions that were already opened by new ones, to discard their state."""
        if not self._opened:
            return
        self.close()
        self._make()
        self.reported = None

    @property
    def level(self) -> int:
        return self.chain.level

    def open(
        self,
        restored: Callable[[str], Restored] = lambda uid: Restored(None, {}),
        wanted: Callable[[Operator], bool] = lambda operator: True,
    ) -> None:
        """Open the operators, last first, so that each one finds its consumers ready.

        `restored` returns an operator's state by uid. `wanted` selects the operators to open if no epoch is to be run.
        """
        if self._opened:
            return
        for place in reversed(range(len(self.operators))):
            chained = self.chain.operators[place]
            if not wanted(self.operators[place]):
                continue
            context = RuntimeContext(
                task_name=chained.name,
                uid=chained.uid,
                subtask=self.subtask,
                parallelism=self.chain.parallelism,
                max_parallelism=self.chain.max_parallelism,
                overlay=self.overlay if chained.keyed else None,
                metrics=self.metrics[place],
                job_parameters=self.graph.job_parameters,
            )
            operator = self.operators[place]
            operator.moment = self.moment
            operator.overlay = self.overlay if chained.keyed else None
            if operator.overlay is not None:
                operator.overlay.ttl.go_by(StateClock(operator))
            if operator.keeps_state:
                operator.initialize(context, restored(operator.uid))
            operator.open(context, _unrouted)
            self._opened.append(self.operators[place])

    def connect(self, exchanges: dict[int, Exchange]) -> list[Callable[[Records], None]]:
        """Wire operators to each other and to this epoch's exchanges, and return the receivers of the chain's input."""
        for place in reversed(range(len(self.operators))):
            operator = self.operators[place]
            owned = self._gives_owned(place)
            operator.emit = self._checked(place, fan_out(self._consumers(place, None, exchanges), owned))
            operator.mark = self._marking(place, exchanges)
            operator.sides = {
                tag: fan_out(self._consumers(place, tag, exchanges)) for tag in self._tags_read_from(place)
            }
        if self.chain.dead_letters:
            tag = next(iter(self._tags_read_from(None)))
            self.letters = fan_out(self._consumers(None, tag, exchanges))
        roots: list[Callable[[Records], None]] = [
            each_to(self.operators[place])
            for place, op in enumerate(self.chain.operators)
            if op.parent is None and op.parent_tag is None
        ]
        sending = [
            exchanges[edge.id].process_many for edge in self._edges if edge.from_operator is None and edge.tag is None
        ]
        if len(roots) + len(sending) > 1:
            # Each operator can change its input; the other consumers must not see the changes.
            roots = [with_copies(root) for root in roots]
        return roots + sending

    def advance_of(self, operator: Operator) -> Callable[..., None]:
        """Return the receiver of an operator's watermarks: a Mark whose channel has a default."""
        return operator.advance

    def _marking(self, place: int, exchanges: dict[int, Exchange]) -> Mark:
        """Return a Mark that passes an operator's watermarks to the operators chained to it and to its edges."""
        receivers: list[Mark] = [
            self.advance_of(self.operators[index])
            for index, other in enumerate(self.chain.operators)
            if other.parent == place
        ]
        receivers += [exchanges[edge.id].mark for edge in self._edges if edge.from_operator == place]
        if len(receivers) == 1:
            return receivers[0]

        def mark(watermark: int | None, channel: str) -> None:
            for receive in receivers:
                receive(watermark, channel)

        return mark

    def roots(self, exchanges: dict[int, Exchange], letters: bool = True) -> list[Mark]:
        """Return the receivers of a source's own watermarks: the first operators and the edges that start at it.

        `letters` includes the receivers of its dead letters, which only see the end of a split.
        """
        receivers: list[Mark] = [
            self.advance_of(self.operators[place])
            for place, operator in enumerate(self.chain.operators)
            if operator.parent is None and (letters or operator.parent_tag is None)
        ]
        return receivers + [
            exchanges[edge.id].mark
            for edge in self._edges
            if edge.from_operator is None and (letters or edge.tag is None)
        ]

    def _consumers(self, place: int | None, tag: str | None, exchanges: dict[int, Exchange]) -> list[Consumer]:
        edges = [edge for edge in self._edges if edge.from_operator == place and edge.tag == tag]
        sending = [Consumer(exchanges[edge.id].process, exchanges[edge.id].process) for edge in edges]
        return sending + [
            Consumer.of(self.operators[index])
            for index, operator in enumerate(self.chain.operators)
            if operator.parent == place and operator.parent_tag == tag
        ]

    def _gives_owned(self, place: int) -> bool:
        """Return whether an operator's output is immutable or unshared; one consumer then needs no copy."""
        chained = self.chain.operators[place]
        if chained.output_type is not None and serializer_for(pickle.loads(chained.output_type)).immutable:
            return True
        # The record is passed through as the source or exchange created it.
        return chained.assigns_time and chained.parent is None

    def _tags_read_from(self, place: int | None) -> set[str]:
        tags = [edge.tag for edge in self._edges if edge.from_operator == place]
        tags += [operator.parent_tag for operator in self.chain.operators if operator.parent == place]
        return {tag for tag in tags if tag is not None}

    def _checked(self, place: int, emit: Emit) -> Emit:
        declared = self.chain.operators[place].output_type
        if declared is None:
            return emit
        operator = self.operators[place]
        return TypeCheck(serializer_for(pickle.loads(declared)), operator, emit).process

    def exchanges(self, producer: int, out: list[ExchangeRow]) -> dict[int, Exchange]:
        return {edge.id: self._exchange(edge, producer, out) for edge in self._edges}

    def _exchange(self, edge: Edge, producer: int, out: list[ExchangeRow]) -> Exchange:
        graph = self.graph
        chain = graph.chains[edge.to_chain]
        hops = [
            Hop(next_target(graph, self.level, chain.level, target), route_to(chain.level, target))
            for target in range(chain.first_target, chain.first_target + chain.parallelism)
        ]
        sender = self.source if edge.from_operator is None else party_of(self.operators[edge.from_operator])
        if edge.from_operator is not None and self._passes_on_fresh(edge.from_operator):
            sender = sender._replace(is_source=True)
        channel = channel_of(edge.id, producer)
        moment = self.moment if graph.timed else None
        outlet = Outlet(sender, channel, hops, self._codecs[edge.id], graph.buffer_bytes, out, moment)
        match edge.kind:
            case "key":
                return KeyExchange(outlet, self._keyings[edge.id])
            case "forward":
                return SingleExchange(outlet, producer)
            case "global":
                return SingleExchange(outlet, 0)
            case "broadcast":
                return BroadcastExchange(outlet)
            case "shuffle":
                return ShuffleExchange(outlet, producer)
            case "custom":
                return CustomExchange(outlet, *self._partitioners[edge.id])
            case "rescale":
                # A task of a source has the number of Spark's partition.
                producers = self.chain.parallelism or self.chain.tasks
                share = share_of(producer % producers, producers, len(hops))
                return RoundRobinExchange(outlet, share, producer)
        return RoundRobinExchange(outlet, range(len(hops)), producer)

    def _passes_on_fresh(self, place: int) -> bool:
        """Return whether an operator passes on the source's own records and no other operator in the chain has them."""
        operators = self.chain.operators
        alone = len(operators) == 1 and not any(e.from_operator is None and e.tag is None for e in self._edges)
        return alone and self.chain.source_uid is not None and operators[place].assigns_time

    def set_time(self, processing_time: int, watermark: int) -> None:
        """Set the time at which states are read, outside an epoch."""
        self.moment.processing_time = processing_time
        self.operators[0].watermark = watermark

    def tick(self) -> None:
        """Fire the processing-time timers that the epoch's clock has reached."""
        if self.overlay is not None:
            self.operators[0].tick()

    def expected_channels(self) -> list[int]:
        """Return the known channels that must close. Only Spark knows how many channels a source has."""
        channels = []
        for number in self.chain.inputs:
            edge = self.graph.edges[number]
            producers = self.graph.chains[edge.from_chain].parallelism
            channels += [channel_of(number, producer) for producer in range(producers)]
        return channels

    def port(self, channel: int) -> int:
        return self.graph.edges[edge_of(channel)].port

    def decode(self, channel: int, data: bytes) -> list[Any]:
        return self._input_codecs[edge_of(channel)].decode_many(data)

    def close(self) -> None:
        """Close the operators that were opened, first operator first, even if opening failed halfway."""
        while self._opened:
            self._opened.pop().close()

    def abandon(self) -> None:
        """Stop the operators' threads without closing them; called instead of `close` if the task was lost."""
        while self._opened:
            self._opened.pop().abandon()


def next_target(graph: Plan, level: int, to_level: int, target: int) -> int:
    """Return the partition of the stage after `level` that a row passes through to reach `target` of `to_level`."""
    if to_level == level + 1:
        return target
    if level + 1 >= len(graph.levels):
        return 0
    return target % graph.targets(level + 1)


def _unrouted(value: Any) -> None:
    raise PenstockError("A function emitted a record from open(...); records can only be emitted during an epoch.")


def _codec(edge: Edge) -> Codec:
    if edge.pickled_type is None:
        return PICKLED
    declared = pickle.loads(edge.pickled_type)
    if isinstance(declared, Hinted):
        return hinted_codec(serializer_for(declared.spec))
    # An operator's main output is already checked there; side outputs and sources are not.
    return declared_codec(serializer_for(declared), edge.tag is None and edge.from_operator is not None)


def _partitioner(graph: Plan, edge: Edge) -> tuple[Callable[[Any], Any], Callable[[Any, int], int], Party]:
    assert edge.pickled_key is not None
    selector, partitioner = pickle.loads(edge.pickled_key)
    head = graph.chains[edge.to_chain].operators[0]
    user = Party(f"partitioner of {head.name}", head.uid, location=edge.location)
    return method_of(selector, "get_key"), method_of(partitioner, "partition"), user


def _keying(graph: Plan, edge: Edge) -> Keying:
    assert edge.pickled_key is not None
    selector, key_type = pickle.loads(edge.pickled_key)
    coerce = None
    if key_type is not None:
        serializer = serializer_for(key_type)

        def coerce(key: Any) -> Any:
            return serializer.decode(serializer.encode(key))

    chain = graph.chains[edge.to_chain]
    groups = range(chain.max_parallelism)
    owners = [owner_of(group, chain.parallelism, chain.max_parallelism) for group in groups]
    head = chain.operators[0]
    select = method_of(selector, "get_key")
    user = Party(f"key selector of {head.name}", head.uid, location=edge.location)
    return Keying(select, coerce, owners, user, plain_field(select))
