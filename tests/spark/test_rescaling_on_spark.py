"""A running query's stages get other numbers of partitions from one epoch to the next."""

from collections import Counter
from typing import Any

import pytest

from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.spark

KEYS, EPOCHS, PER_EPOCH = 30, 12, 60
SCALES: dict[int, Any] = {2: 4, 4: {"count": 1}, 6: 3, 8: 2, 10: {"relay": 5}}


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: int, ctx: Any) -> Any:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value % KEYS, n, self.subtasks


class Relay(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_a_live_rescale_loses_nothing_and_keeps_the_query(make_env: Any) -> None:
    env = make_env(parallelism=2, records=PER_EPOCH, checkpoints=True)
    counted = (
        env.from_collection(list(range(KEYS * EPOCHS * 2))).key_by(lambda n: n % KEYS).process(Count()).uid("count")
    )
    relayed = counted.key_by(lambda value: value[1]).process(Relay()).uid("relay")
    epochs: list[int] = []

    def on_epoch(epoch: Any) -> None:
        epochs.append(epoch.number)
        if epoch.number in SCALES:
            client.rescale(SCALES[epoch.number])

    env.add_epoch_listener(on_epoch)
    results = relayed.execute_and_collect("rescaled")
    client = results.get_job_client()
    with results:
        output = list(results)
    assert Counter((key, n) for key, n, _ in output) == {
        (key, n + 1): 1 for key in range(KEYS) for n in range(EPOCHS * 2)
    }
    by_subtasks = Counter(subtasks for _, _, subtasks in output)
    assert set(by_subtasks) == {1, 2, 3, 4}
    assert client.restarts() == 0
    operators = {each.uid: each for each in client.get_checkpoints().latest_completed.operators}
    assert len(operators["relay"].subtasks) == 5
