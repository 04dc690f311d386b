"""A program whose states are not pickled, and helpers for tests of its savepoints."""

from contextlib import suppress

from table_jobs import KeyedProcessFunction, environment

from penstock.common import Types
from penstock.common.time import Duration
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import PenstockError


class Typed(KeyedProcessFunction):
    """Uses states with types that are not pickled, and timers."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", str))
        self.parts = runtime_context.get_map_state(MapStateDescriptor("parts", tuple[str, int], bytes))
        fading = ValueStateDescriptor("fading", bytes)
        fading.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_minutes(5)).build())
        self.fading = runtime_context.get_state(fading)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + 1)
        self.names.add(str(value[1]))
        self.parts.put(("p", value[1]), b"bytes")
        self.fading.update(b"more")
        ctx.timer_service().register_processing_time_timer(10**13 + value[1])
        yield len(list(self.names.get())), len(list(self.parts.items()))

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key()


def typed():
    stream = environment().from_collection([], type_info=Types.TUPLE([Types.STRING(), Types.LONG()])).uid("numbers")
    return stream.key_by(lambda pair: pair[0]).process(Typed()).uid("typed")


RECORDS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]


def tolerated(call):
    """Call it, accepting only Penstock errors."""
    with suppress(PenstockError):
        call()
