"""Detect an event pattern: a card that pays less than one euro three times in a row and then more than five hundred."""

from collections.abc import Iterator

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor

SMALL, LARGE, PROBES = 1.0, 500.0, 3
SAMPLE = [("card-1", 0.5), ("card-2", 700.0), ("card-1", 0.2), ("card-1", 0.9), ("card-1", 650.0), ("card-2", 0.1)]


class Detect(KeyedProcessFunction):
    """Emits (card, the small amounts, the large amount) when the pattern is complete."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.probes = runtime_context.get_list_state(ListStateDescriptor("probes", float))

    def process_element(
        self, value: tuple[str, float], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, list[float], float]]:
        card, amount = value
        if amount < SMALL:
            self.probes.add(amount)
            return
        probes = list(self.probes)
        self.probes.clear()
        if amount > LARGE and len(probes) >= PROBES:
            yield card, probes, amount


def build(payments: DataStream) -> DataStream:
    return payments.key_by(lambda payment: payment[0]).process(Detect()).uid("pattern").name("alerts")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("event-pattern")
