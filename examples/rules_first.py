"""Check orders against rules that must all be present before the first order. Until then, orders wait in state."""

from collections.abc import Iterator
from typing import Any

from penstock.common import Types
from penstock.datastream import DataStream, KeyedBroadcastProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor

LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())
"""The limits by country."""
SIZE = MapStateDescriptor("size of the first set", Types.STRING(), Types.INT())
WAITING = ListStateDescriptor("waiting", Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()]))

# ("order", country, amount), ("rule", country, limit) or ("rules", "", number of rules in the first set)
SAMPLE = [
    ("order", "de", 120),
    ("order", "fr", 70),
    ("rules", "", 2),
    ("rule", "de", 100),
    ("order", "de", 90),
    ("rule", "fr", 80),
    ("order", "fr", 95),
]


class OverTheLimit(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Checks an order when the first set of rules is complete, in whatever order they arrive."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(
        self, order: tuple[str, str, int], ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[tuple[str, int, int]]:
        if is_complete(ctx):
            yield from check(order, ctx)
        else:
            self.waiting.add(order)

    def process_broadcast_element(
        self, rule: tuple[str, str, int], ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterator[tuple[str, int, int]]:
        was_complete = is_complete(ctx)
        kind, country, number = rule
        if kind == "rules":
            ctx.get_broadcast_state(SIZE).put("size", number)
        else:
            ctx.get_broadcast_state(LIMITS).put(country, number)
        if is_complete(ctx) and not was_complete:
            results: list[tuple[str, int, int]] = []

            def release(key: str, waiting: Any) -> None:
                for order in waiting.get():
                    results.extend(check(order, ctx))
                waiting.clear()

            ctx.apply_to_keyed_state(WAITING, release)
            yield from results


def is_complete(ctx: Any) -> bool:
    """Return whether all announced rules are present. The announcement can arrive after the rules."""
    size = ctx.get_broadcast_state(SIZE).get("size")
    return size is not None and len(list(ctx.get_broadcast_state(LIMITS))) >= size


def check(order: tuple[str, str, int], ctx: Any) -> Iterator[tuple[str, int, int]]:
    _, country, amount = order
    limit = ctx.get_broadcast_state(LIMITS).get(country)
    if limit is not None and amount > limit:
        yield country, amount, limit


def build(events: DataStream) -> DataStream:
    """Return a stream of (country, amount, the exceeded limit)."""
    rules = events.filter(lambda event: event[0] != "order").broadcast(LIMITS, SIZE)
    orders = events.filter(lambda event: event[0] == "order").key_by(lambda order: order[1])
    return orders.connect(rules).process(OverTheLimit()).uid("over the limit")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("rules first")
