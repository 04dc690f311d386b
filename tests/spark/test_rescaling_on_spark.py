"""The stages of a running query change their number of partitions between epochs."""

from collections import Counter
from typing import Any

import pytest

from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.spark

KEYS, EPOCHS, PER_EPOCH = 30, 12, 60
TIMES = EPOCHS * PER_EPOCH // KEYS
SCALES: dict[int, Any] = {2: 4, 4: {"count": 1}, 6: 3, 8: 2, 10: {"relay": 5}}
"""The requested parallelism, by the epoch after which it is requested."""


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: int, ctx: Any) -> Any:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value % KEYS, n, self.subtasks


class Relay(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield *value, self.subtasks


def test_a_live_rescale_loses_nothing_and_keeps_the_query(make_env: Any) -> None:
    env = make_env(parallelism=2, records=PER_EPOCH, checkpoints=True)
    numbers = env.from_collection(list(range(EPOCHS * PER_EPOCH)))
    counted = numbers.key_by(lambda n: n % KEYS).process(Count()).uid("count")
    relayed = counted.key_by(lambda value: value[1]).process(Relay()).uid("relay")

    def on_epoch(epoch: Any) -> None:
        if epoch.number in SCALES:
            client.rescale(SCALES[epoch.number])

    env.add_epoch_listener(on_epoch)
    results = relayed.execute_and_collect("rescaled")
    client = results._client
    with results:
        output = list(results)
    assert Counter(row[:2] for row in output) == {(key, n): 1 for key in range(KEYS) for n in range(1, TIMES + 1)}
    # Two epochs at each scale, and four at the program's.
    epochs_at = {(2, 2): 4, (4, 4): 2, (1, 4): 2, (3, 3): 2, (2, 5): 2}
    assert Counter(row[2:] for row in output) == {scale: n * PER_EPOCH for scale, n in epochs_at.items()}
    assert client.restarts() == 0
