"""Track the smallest value per key. The first value of a key is always the smallest so far."""

from collections.abc import Iterator

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

SAMPLE = [(2, 21), (4, 1), (5, 4), (2, 30), (2, 7)]


class LeastValue(KeyedProcessFunction):
    """Emits (key, value, smallest value so far) for every record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.least = runtime_context.get_state(ValueStateDescriptor("leastValue", int))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        key, number = value
        least = self.least.value()
        # A missing value is None, not zero, so test for it explicitly.
        if least is None or number < least:
            least = number
            self.least.update(least)
        yield key, number, least


def build(records: DataStream) -> DataStream:
    return records.key_by(lambda record: record[0]).process(LeastValue()).uid("least-value")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("least-value")
