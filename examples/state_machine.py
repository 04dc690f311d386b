"""Follow the sessions of many sources through one state machine and raise an alert for each invalid event.

Initial -a-> W, -c-> X; W -b-> Y; X -b-> Y, -d-> Z; Y -e-> Z; Z -g-> terminal, which clears the session. Any other event
raises an alert with source, state and event, and the session stays in its state.
"""

from collections.abc import Iterator

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

TRANSITIONS = {
    ("Initial", "a"): "W",
    ("Initial", "c"): "X",
    ("W", "b"): "Y",
    ("X", "b"): "Y",
    ("X", "d"): "Z",
    ("Y", "e"): "Z",
    ("Z", "g"): None,
}

SAMPLE = [("host-1", "a"), ("host-2", "c"), ("host-1", "b"), ("host-2", "e"), ("host-1", "e"), ("host-1", "g")]


class Follow(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state", str))

    def process_element(
        self, value: tuple[str, str], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, str, str]]:
        source, event = value
        state = self.state.value() or "Initial"
        if (state, event) in TRANSITIONS:
            self.state.update(TRANSITIONS[state, event])
        else:
            yield source, state, event


def build(events: DataStream) -> DataStream:
    return events.key_by(lambda event: event[0]).process(Follow()).uid("state-machine").name("alerts")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("state-machine")
