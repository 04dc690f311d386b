"""The plan of a program, as JSON and as an SVG image."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from penstock.common import Types
from penstock.datastream import CoMapFunction, OutputTag, StreamExecutionEnvironment
from penstock.graph.picture import picture
from penstock.graph.plan_json import plan_of

SVG = "{http://www.w3.org/2000/svg}"


class Both(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


@pytest.fixture
def plan():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(3)
    numbers = env.from_collection([1, 2], type_info=Types.INT()).name("numbers <&>").uid("numbers")
    plus = numbers.map(lambda n: n + 1).name("plus one")
    letters = env.from_collection(["a"]).name("letters")
    counted = plus.union(letters).key_by(lambda value: value).process(lambda value, ctx: [value]).name("count")
    counted.get_side_output(OutputTag("odd")).print().name("odd ones")
    plus.connect(counted).map(Both()).name("both").slot_sharing_group("heavy").set_parallelism(2).print().name("all")
    return json.loads(json.dumps(plan_of(env._graph, env._physical())))


def by_name(plan):
    return {node["contents"]: node for node in plan["nodes"]}


def test_every_operator_follows_its_inputs_and_has_its_level_and_parallelism(plan):
    nodes = by_name(plan)
    assert list(nodes) == ["numbers <&>", "plus one", "letters", "count", "odd ones", "both", "all"]
    places = {name: (node["pact"], node["level"], node["parallelism"]) for name, node in nodes.items()}
    assert places == {
        "numbers <&>": ("Data Source", 0, None),
        "plus one": ("Operator", 0, None),
        "letters": ("Data Source", 0, None),
        "count": ("Operator", 1, 3),
        "odd ones": ("Data Sink", 1, 3),
        "both": ("Operator", 2, 2),
        "all": ("Data Sink", 3, 3),
    }


def test_a_node_describes_its_operator(plan):
    nodes = by_name(plan)
    assert (nodes["numbers <&>"]["uid"], nodes["numbers <&>"]["uid_given"]) == ("numbers", True)
    assert nodes["numbers <&>"]["bounded"] is True
    assert nodes["numbers <&>"]["output_type"] == "Integer"
    assert (nodes["count"]["operator"], nodes["count"]["keyed"]) == ("Process", True)
    assert nodes["both"]["slot_sharing_group"] == "heavy"
    assert nodes["plus one"]["chain"] == nodes["numbers <&>"]["chain"]


def test_an_edge_describes_how_records_travel(plan):
    nodes = by_name(plan)

    def edges(name):
        ids = {node["id"]: other for other, node in nodes.items()}
        return [
            (ids[edge["id"]], edge["ship_strategy"], edge["side"], edge["exchange"], edge.get("side_output"))
            for edge in nodes[name]["predecessors"]
        ]

    assert edges("plus one") == [("numbers <&>", "FORWARD", "first", False, None)]
    assert edges("count") == [("plus one", "HASH", "first", True, None), ("letters", "HASH", "first", True, None)]
    assert edges("odd ones") == [("count", "FORWARD", "first", False, "odd")]
    # Parallelism 3 to 2: the implicit forward became a rebalance.
    assert edges("both") == [
        ("plus one", "REBALANCE", "first", True, None),
        ("count", "REBALANCE", "second", True, None),
    ]


def test_the_image_has_a_box_per_operator_a_frame_per_chain_and_a_line_per_edge(plan):
    drawn = ElementTree.fromstring(picture(plan))
    titles = [title.text for title in drawn.iter(f"{SVG}title")]
    assert titles == [f"{node['contents']} (uid {node['uid']})" for node in plan["nodes"]]
    classes = [rect.get("class").split()[0] for rect in drawn.iter(f"{SVG}rect")]
    assert classes.count("chain") == len({node["chain"] for node in plan["nodes"]})
    lines = [path for path in drawn.iter(f"{SVG}path") if path.get("class") == "edge"]
    assert len(lines) == sum(len(node.get("predecessors", [])) for node in plan["nodes"])


def test_boxes_of_the_image_do_not_overlap(plan):
    drawn = ElementTree.fromstring(picture(plan))
    boxes = [
        tuple(int(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in drawn.iter(f"{SVG}rect")
        if rect.get("class") != "chain"
    ]
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, _, _ in boxes[index + 1 :]:
            assert abs(x - other_x) >= width or abs(y - other_y) >= height
