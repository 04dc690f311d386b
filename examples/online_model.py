"""Train a model per machine while it predicts, with the parameters in state.

Linear regression by stochastic gradient descent. Each record is (machine, x, y). The output is (machine, prediction
made before y was known, error).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

RATE = 0.1
SAMPLE = [("press", x / 10, 3 * x / 10 + 1) for x in range(10)] * 40


@dataclass(frozen=True)
class Model:
    slope: float = 0.0
    offset: float = 0.0


class Learn(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.model = runtime_context.get_state(ValueStateDescriptor("model", Model))

    def process_element(
        self, value: tuple[str, float, float], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, float, float]]:
        machine, x, y = value
        model = self.model.value() or Model()
        prediction = model.slope * x + model.offset
        error = y - prediction
        self.model.update(Model(model.slope + RATE * error * x, model.offset + RATE * error))
        yield machine, prediction, error


def build(readings: DataStream) -> DataStream:
    return readings.key_by(lambda reading: reading[0]).process(Learn()).uid("model")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection(SAMPLE)).filter(lambda result: abs(result[2]) > 0.5).print()
    env.execute("online-model")
