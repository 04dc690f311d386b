"""k-means: assign points to the nearest centre and move centres to the mean of their points until none moves.

penstock run examples/k_means.py
"""

from collections.abc import Iterator

from penstock.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Superstep,
    iterate_bounded,
)
from penstock.datastream.state import ListStateDescriptor

POINTS = [(1.0, 1.0), (1.5, 2.0), (1.0, 1.5), (8.0, 8.0), (9.0, 8.5), (8.5, 9.0), (0.5, 1.5), (8.5, 8.5)]
CENTRES = [(0, 0.0, 0.0), (1, 5.0, 5.0)]
PARTS = 4
"""The number of parts into which the points are divided. Each part receives all centres."""
NEAR = 1e-6

Centre = tuple[int, float, float]
Sum = tuple[int, float, float, int]


class Nearest(KeyedCoProcessFunction):
    """Holds a part of the points, and assigns each to its nearest centre at the end, when all centres are known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.centres = runtime_context.get_list_state(ListStateDescriptor("centres", tuple[int, float, float]))
        self.points = runtime_context.get_list_state(ListStateDescriptor("points", tuple[float, float]))

    def process_element1(self, value: tuple[int, Centre], ctx: KeyedCoProcessFunction.Context) -> None:
        self.centres.add(value[1])
        ctx.timer_service().register_event_time_timer(2**63 - 2)

    def process_element2(self, value: tuple[int, tuple[float, float]], ctx: KeyedCoProcessFunction.Context) -> None:
        self.points.add(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Sum]:
        centres = list(self.centres)
        for x, y in self.points:
            number = min(centres, key=lambda centre: (centre[1] - x) ** 2 + (centre[2] - y) ** 2)[0]
            yield number, x, y, 1


def superstep(centres: DataStream, number: int) -> Superstep:
    env = centres.get_execution_environment()
    sent = centres.flat_map(lambda centre: [(part, centre) for part in range(PARTS)])
    points = env.from_collection([(place % PARTS, point) for place, point in enumerate(POINTS)])
    nearest = sent.connect(points).key_by(lambda pair: pair[0], lambda pair: pair[0]).process(Nearest())
    sums = nearest.key_by(lambda given: given[0]).reduce(
        lambda one, two: (one[0], one[1] + two[1], one[2] + two[2], one[3] + two[3])
    )
    moved = sums.map(lambda total: (total[0], total[1] / total[3], total[2] / total[3]))
    both = centres.map(lambda centre: (*centre, True)).union(moved.map(lambda centre: (*centre, False)))
    far = both.key_by(lambda centre: centre[0]).reduce(
        lambda one, two: (one[0], abs(one[1] - two[1]), abs(one[2] - two[2]), None)
    )
    return Superstep(moved, far.filter(lambda off: off[3] is None and max(off[1], off[2]) > NEAR))


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    found = iterate_bounded(env, CENTRES, superstep, max_supersteps=50)
    print(f"{found.supersteps} supersteps")
    for number, x, y in sorted(found.records):
        print(number, round(x, 3), round(y, 3))


if __name__ == "__main__":
    main()
