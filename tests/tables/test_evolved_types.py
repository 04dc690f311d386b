"""States whose type has changed: old and new values coexist, and a table shows all in the current version."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from penstock.common import RenamedFrom, Types
from penstock.common.time import Duration
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.tables import Savepoint, SavepointWriter
from penstock.testing import JobHarness


@dataclass
class First:
    name: str
    price: int


@dataclass
class Second:
    name: str
    amount: Annotated[int, RenamedFrom("price")]
    tags: str = "none"


@dataclass
class Third:
    name: str
    amount: float
    count: int = 1


State = enum.Enum("State", ["OPEN", "PAID", "CANCELLED"])
Reordered = enum.Enum("Reordered", ["CANCELLED", "PAID", "DRAFT", "OPEN"])

MADE: dict[type, Any] = {
    State: lambda n: list(State)[n],
    Reordered: lambda n: list(Reordered)[n],
    First: lambda n: First("a", n),
    Second: lambda n: Second("b", n),
    Third: lambda n: Third("c", n),
}


class Keep(KeyedProcessFunction):
    def __init__(self, kind: type) -> None:
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        fading = ValueStateDescriptor("fading", self.kind)
        fading.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
        self.value = runtime_context.get_state(ValueStateDescriptor("value", self.kind))
        self.fading = runtime_context.get_state(fading)
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", self.kind))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", str, self.kind))

    def process_element(self, pair: Any, ctx: Any) -> Any:
        key, n = pair
        if n is not None:
            made = MADE[self.kind](n)
            self.value.update(made)
            self.fading.update(made)
            self.list.add(made)
            self.map.put(str(n), made)
        yield key, self.value.value(), self.fading.value(), list(self.list.get()), dict(self.map.items())


def program(kind: type) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("pairs").key_by(lambda pair: pair[0]).process(Keep(kind)).uid("keep")


@pytest.fixture(params=["memory", "filesystem", "rocksdb"])
def evolved(request: Any, tmp_path: Any) -> str:
    """Return a savepoint of a job whose class had three versions. Each version wrote its own key and a shared one."""
    path = None
    for kind, number in [(First, 1), (Second, 2), (Third, 3)]:
        with JobHarness(program(kind), backend=request.param, from_savepoint=path) as job:
            job.push((f"of {number}", number), ("of all", number)).epoch()
            path = job.savepoint(tmp_path / str(number))
    assert path is not None
    return path


def third(name: str, amount: float) -> dict[str, Any]:
    return {"name": name, "amount": amount, "count": 1}


def rows(path: str, name: str) -> dict[Any, Any]:
    found = Savepoint.load(path).state("keep", name).rows()
    return {(row["key"], row.get("index", row.get("map_key"))): row["value"] for row in found}


def test_every_value_is_shown_in_the_current_version(evolved: str) -> None:
    values = {("of 1", None): third("a", 1.0), ("of 2", None): third("b", 2.0), ("of 3", None): third("c", 3.0)}
    values["of all", None] = third("c", 3.0)
    assert rows(evolved, "value") == rows(evolved, "fading") == values
    assert rows(evolved, "list") == {
        ("of 1", 0): third("a", 1.0),
        ("of 2", 0): third("b", 2.0),
        ("of 3", 0): third("c", 3.0),
        ("of all", 0): third("a", 1.0),
        ("of all", 1): third("b", 2.0),
        ("of all", 2): third("c", 3.0),
    }
    assert rows(evolved, "map")["of all", "2"] == third("b", 2.0)
    frame = Savepoint.load(evolved).state("keep", "value").to_pandas()
    assert sorted(frame["value.amount"]) == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("name", ["value", "fading", "list", "map"])
def test_changes_to_a_table_are_read_by_the_job(evolved: str, name: str, tmp_path: Any) -> None:
    def doubled(table: Any) -> Any:
        table.loc[table["key"] != "of 1", "value.amount"] *= 2
        return table

    changed = SavepointWriter.from_existing_savepoint(evolved).transform_state("keep", name, doubled)
    path = changed.write(str(tmp_path / "changed"))
    with JobHarness(program(Third), from_savepoint=path) as job:
        job.push(("of 1", None), ("of 2", None), ("of all", None)).epoch()
        seen = {key: dict(zip(("value", "fading", "list", "map"), states)) for key, *states in job.output}
    factor = {each: 2 if each == name else 1 for each in ("value", "fading", "list", "map")}
    for key, number, letter in [("of 1", 1, "a"), ("of 2", 2, "b")]:
        for each, times in factor.items():
            expected = Third(letter, float(number * (times if key != "of 1" else 1)))
            assert seen[key][each] == {"list": [expected], "map": {str(number): expected}}.get(each, expected)
    assert [each.amount for each in seen["of all"]["list"]] == [n * factor["list"] for n in (1.0, 2.0, 3.0)]


def test_members_of_a_reordered_enum_are_shown_and_written_by_name(tmp_path: Any) -> None:
    def opened(table: Any) -> Any:
        table.loc[table["key"] == "c", "value"] = "OPEN"
        return table

    with JobHarness(program(State)) as job:
        job.push(("o", 0), ("c", 2)).epoch()
        path = job.savepoint(tmp_path / "before")
    with JobHarness(program(Reordered), from_savepoint=path) as job:
        job.push(("d", 2)).epoch()
        path = job.savepoint(tmp_path / "after")
    assert rows(path, "value") == {("o", None): "OPEN", ("c", None): "CANCELLED", ("d", None): "DRAFT"}
    changed = SavepointWriter.from_existing_savepoint(path).transform_state("keep", "value", opened)
    with JobHarness(program(Reordered), from_savepoint=changed.write(str(tmp_path / "changed"))) as job:
        job.push(("o", None), ("c", None), ("d", None)).epoch()
        assert [(value, fading) for _, value, fading, *_ in job.output] == [
            (Reordered.OPEN, Reordered.OPEN),
            (Reordered.OPEN, Reordered.CANCELLED),
            (Reordered.DRAFT, Reordered.DRAFT),
        ]


def rules(kind: type) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    descriptor = MapStateDescriptor("rules", Types.STRING(), kind)

    class Rules(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield {key: rule.amount for key, rule in ctx.get_broadcast_state(descriptor).items()}

        def process_broadcast_element(self, n: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(descriptor).put(str(n), MADE[kind](n))

    data = env.from_collection([]).uid("data")
    return data.connect(env.from_collection([]).uid("rules in").broadcast(descriptor)).process(Rules()).uid("rules")


def test_broadcast_state_of_several_versions_can_be_read_and_changed(tmp_path: Any) -> None:
    path = None
    for kind, number in [(First, 1), (Second, 2), (Third, 3)]:
        with JobHarness(rules(kind), from_savepoint=path) as job:
            job.push(number, source="rules in").epoch()
            path = job.savepoint(tmp_path / str(number))
    table = Savepoint.load(path).state("rules", "rules")
    assert {row["map_key"]: row["value"]["amount"] for row in table.rows()} == {"1": 1.0, "2": 2.0, "3": 3.0}

    def tenfold(frame: Any) -> Any:
        frame["value.amount"] *= 10
        return frame

    writer = SavepointWriter.from_existing_savepoint(path).transform_state("rules", "rules", tenfold)
    with JobHarness(rules(Third), from_savepoint=writer.write(str(tmp_path / "changed"))) as job:
        job.push("any", source="data").epoch()
        assert job.output == [{"1": 10.0, "2": 20.0, "3": 30.0}]
