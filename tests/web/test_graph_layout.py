"""Boxes of the graph: left to right, without overlaps."""

from itertools import combinations

import pytest

from penstock.web.graph_layout import WIDTH, Node, layout


def chain(count):
    return [Node(str(number), [str(number - 1)] if number else [], 2) for number in range(count)]


def wide(count):
    sources = [Node(f"s{number}", [], number % 9) for number in range(count)]
    return [*sources, Node("end", [each.id for each in sources], 1)]


@pytest.mark.parametrize("nodes", [[], chain(1), chain(60), wide(59)], ids=["none", "one", "line", "fan"])
def test_boxes_do_not_overlap_and_edges_point_to_the_right(nodes):
    placed = layout(nodes)
    for one, other in combinations(placed.boxes.values(), 2):
        assert one.x != other.x or one.y + one.height <= other.y or other.y + other.height <= one.y
    for node in nodes:
        for each in node.inputs:
            assert placed.boxes[each].x + WIDTH < placed.boxes[node.id].x
    for box in placed.boxes.values():
        assert 0 <= box.x <= placed.width - WIDTH
        assert 0 <= box.y <= placed.height - box.height


def test_parallel_branches_do_not_cross():
    nodes = [Node("a", [], 1), Node("b", [], 1), Node("x", ["b"], 1), Node("y", ["a"], 1)]
    boxes = layout(nodes).boxes
    assert (boxes["a"].y < boxes["b"].y) == (boxes["y"].y < boxes["x"].y)
