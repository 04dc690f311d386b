"""Emit each primary key once, even if records are delivered again."""

from penstock.datastream import DataStream, StreamExecutionEnvironment

SAMPLE = [("order-1", 30), ("order-2", 12), ("order-1", 30), ("order-3", 7), ("order-2", 12)]


def first_time(record: tuple[str, int], seen: bool | None) -> tuple[bool, bool]:
    return not seen, True


def build(orders: DataStream) -> DataStream:
    return orders.key_by(lambda order: order[0]).filter_with_state(first_time, bool).uid("seen")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("deduplicate")
