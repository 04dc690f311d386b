"""The least value seen per key (F15). A key's first value is the least so far, whatever it is."""

from collections.abc import Iterator

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

SAMPLE = [(2, 21), (4, 1), (5, 4), (2, 30), (2, 7)]


class LeastValue(KeyedProcessFunction):
    """(key, value, least value so far) for every record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.least = runtime_context.get_state(ValueStateDescriptor("leastValue", int))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        key, number = value
        least = self.least.value()
        # Nothing stored yet is not zero: decide for it by name.
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
