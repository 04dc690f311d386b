"""Keep a running sum per key with map_with_state: each record emits its key and the previous sum."""

from penstock.datastream import DataStream, StreamExecutionEnvironment

SAMPLE = [(2, 2), (4, 1), (5, 4), (2, 3)]


def add(record: tuple[int, int], total: int | None) -> tuple[tuple[int, int], int]:
    before = total or 0
    return (record[0], before), before + record[1]


def build(records: DataStream) -> DataStream:
    return records.key_by(lambda record: record[0]).map_with_state(add, int).uid("sum")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("count-with-state")
