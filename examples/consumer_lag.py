"""Compute the lag of each consumer behind the producer. Stateless: no key, no state, no shuffle."""

import json

from penstock.datastream import DataStream, StreamExecutionEnvironment

SAMPLE = ['{"timestamp":1555516800,"offset":{"producer":15,"consumer0":10,"consumer1":7,"consumer2":12}}']


def lag(line: str) -> str:
    record = json.loads(line)
    offsets = record["offset"]
    produced = offsets.pop("producer")
    lags = {consumer: produced - offset for consumer, offset in offsets.items()}
    return json.dumps({"timestamp": record["timestamp"], "lag": lags}, separators=(",", ":"))


def build(lines: DataStream) -> DataStream:
    return lines.map(lag, output_type=str)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).print()
    env.execute("consumer-lag")
