"""Find the connected components of a graph: the label of each vertex is the smallest vertex it can reach.

penstock run examples/connected_components.py
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
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

EDGES = [(1, 2), (2, 3), (3, 4), (5, 6), (6, 7), (8, 8)]

Label = tuple[int, int, int | None]
"""A vertex, a candidate component, and the vertex's previous component, which only its own label contains."""


class Neighbours(KeyedCoProcessFunction):
    """Sends the component of a vertex to each of its neighbours, regardless of the order of edges and labels."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.component = runtime_context.get_state(ValueStateDescriptor("component", int))
        self.neighbours = runtime_context.get_list_state(ListStateDescriptor("neighbours", int))

    def process_element1(self, value: Label, ctx: KeyedCoProcessFunction.Context) -> Iterator[Label]:
        self.component.update(value[1])
        for neighbour in self.neighbours:
            yield neighbour, value[1], None

    def process_element2(self, value: tuple[int, int], ctx: KeyedCoProcessFunction.Context) -> Iterator[Label]:
        self.neighbours.add(value[1])
        component = self.component.value()
        if component is not None:
            yield value[1], component, None


def least(one: Label, other: Label) -> Label:
    return one[0], min(one[1], other[1]), other[2] if one[2] is None else one[2]


def superstep(labels: DataStream, number: int) -> Superstep:
    env = labels.get_execution_environment()
    own = labels.map(lambda label: (label[0], label[1], label[1]))
    edges = env.from_collection([(a, b) for edge in EDGES for a, b in (edge, edge[::-1])])
    sent = own.connect(edges).key_by(lambda label: label[0], lambda edge: edge[0]).process(Neighbours())
    after = own.union(sent).key_by(lambda label: label[0]).reduce(least)
    return Superstep(after, after.filter(lambda label: label[1] != label[2]))


def vertices() -> list[Label]:
    return [(vertex, vertex, None) for vertex in sorted({vertex for edge in EDGES for vertex in edge})]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    found = iterate_bounded(env, vertices(), superstep, max_supersteps=20)
    print(f"{found.supersteps} supersteps")
    for vertex, component, _ in sorted(found.records):
        print(vertex, component)


if __name__ == "__main__":
    main()
