"""Compare each day's value with that of the day before: a map of day to value per shop, kept for two days."""

from collections.abc import Iterator
from datetime import date, timedelta

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor

SAMPLE = [
    ("north", date(2024, 3, 1), 100),
    ("north", date(2024, 3, 2), 120),
    ("south", date(2024, 3, 2), 80),
    ("north", date(2024, 3, 3), 90),
]


class Compare(KeyedProcessFunction):
    """Emits (shop, day, value, difference from the day before or None)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_map_state(MapStateDescriptor("values", date, int))

    def process_element(
        self, value: tuple[str, date, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, date, int, int | None]]:
        shop, day, sold = value
        before = self.values.get(day - timedelta(days=1))
        self.values.put(day, sold)
        self.values.remove(day - timedelta(days=2))
        yield shop, day, sold, None if before is None else sold - before


def build(sales: DataStream) -> DataStream:
    return sales.key_by(lambda sale: sale[0]).process(Compare()).uid("by-day")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("compare-yesterday")
