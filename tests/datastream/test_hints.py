"""Types derived from annotations. An annotation never changes the results of a program."""
# ruff: noqa: UP007, UP045, RUF005 - users write unions in both styles

from __future__ import annotations

import enum
import functools
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.datastream import (
    CoMapFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.graph.builder import build
from penstock.graph.logical import GraphError
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

if TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")
PICKLED = Types.PICKLED_BYTE_ARRAY()
late = OutputTag("late", Types.STRING())


@dataclass
class Event:
    user: str
    amount: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Click(Event):
    """Has a field that Event does not have."""

    url: str = ""


class Point(NamedTuple):
    x: int
    y: int


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Valid:
    n: int

    def __post_init__(self):
        assert self.n > 0


def stream(*records):
    return StreamExecutionEnvironment.get_execution_environment().from_collection(list(records))


def keyed(*records):
    return stream(*records).key_by(lambda record: 0)


def to_int(value: Any) -> int:
    return value


def unannotated(value):
    return value


class Doubled(MapFunction):
    def map(self, value: Any) -> Event:
        return value

    def as_method(self, value: Any) -> str:
        return value

    @classmethod
    def as_classmethod(cls, value: Any) -> float:
        return value


class Called:
    def __call__(self, value: Any) -> tuple[str, int]:
        return value


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def add(scale: int, value: Any) -> list[int]:
    return value


class TestMap:
    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (to_int, int),
            (Doubled(), Event),
            (Doubled().as_method, str),
            (Doubled.as_classmethod, float),
            (Called(), tuple[str, int]),
            (functools.partial(add, 2), list[int]),
            (functools.partial(Called()), tuple[str, int]),
            (logged(to_int), int),
            (unannotated, PICKLED),
            (lambda value: value, PICKLED),
            (len, PICKLED),
            (str, PICKLED),
        ],
    )
    def test_the_return_annotation_determines_the_type(self, function, expected):
        assert stream().map(function).get_type() == expected
        assert keyed().map(function).get_type() == expected

    def test_a_declared_type_overrides_the_annotation(self):
        assert stream().map(to_int, output_type=Types.SHORT()).get_type() == Types.SHORT()
        assert stream().map(to_int, output_type=PICKLED).get_type() == PICKLED

    def test_an_annotation_without_a_serializer_determines_no_type(self):
        def anything(value) -> Any: ...
        def an_object(value) -> object: ...
        def bare(value) -> list: ...
        def held(value) -> dict[str, Any]: ...
        def variable(value) -> T: ...
        def unresolvable(value) -> Unknown: ...
        def nonsense(value) -> 1 / 0: ...
        def two_kinds(value) -> Union[Event, Click]: ...
        def nothing(value) -> None: ...
        def valid(value) -> Valid: ...
        def tree(value) -> Tree: ...

        functions = [anything, an_object, bare, held, variable, unresolvable, nonsense, two_kinds, nothing, valid, tree]
        for function in functions:
            assert stream().map(function).get_type() == PICKLED, function.__name__

    def test_unresolvable_parameter_annotations_do_not_matter(self):
        def function(value: Unknown) -> Optional[Event]: ...

        assert stream().map(function).get_type() == Optional[Event]

    def test_names_of_the_enclosing_function_are_resolved(self):
        @dataclass
        class Local:
            n: int

        def function(value) -> Local:
            return Local(value)

        assert stream().map(function).get_type() is Local

    def test_filter_and_union_keep_the_type(self):
        records = stream()
        ints = records.map(to_int)
        assert ints.filter(bool).get_type() is int
        assert ints.union(records.map(to_int)).get_type() is int
        assert ints.union(records.map(Doubled())).get_type() == PICKLED


class Words(FlatMapFunction):
    def flat_map(self, value) -> Iterable[str]:
        yield value


class Sides(ProcessFunction):
    def process_element(self, value, ctx) -> Iterator[int | tuple[OutputTag, str]]:
        yield value
        yield late, str(value)


class KeyedSides(KeyedProcessFunction):
    def process_element(self, value, ctx) -> Iterator[int]:
        yield value
        yield late, str(value)


class TestManyResults:
    def test_the_element_type_of_the_annotation_determines_the_type(self):
        def iterator(value) -> Iterator[int]: ...
        def generator(value) -> Generator[int, None, None]: ...
        def a_list(value) -> list[int]: ...
        def a_tuple(value) -> tuple[int, ...]: ...
        def optional(value) -> list[int] | None: ...

        for function in (iterator, generator, a_list, a_tuple, optional):
            assert stream().flat_map(function).get_type() is int, function.__name__
            assert keyed().flat_map(function).get_type() is int, function.__name__
        assert stream().flat_map(Words()).get_type() is str

    def test_an_annotation_without_an_element_type_determines_no_type(self):
        def text(value) -> str: ...
        def pair(value) -> tuple[int, str]: ...
        def element(value) -> list[int]:
            yield [value]

        def nothing(value) -> None:
            yield value

        for function in (text, pair, element, nothing):
            assert stream().flat_map(function).get_type() == PICKLED, function.__name__

    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_side_outputs_in_the_annotation_are_ignored(self, parallelism):
        for results in (stream(1, 2).process(Sides()), keyed(1, 2).process(KeyedSides())):
            assert results.get_type() is int
            main = results.map(lambda value: ("main", value)).set_parallelism(parallelism)
            sides = results.get_side_output(late).map(lambda value: ("late", value))
            with JobHarness(main.union(sides)) as job:
                job.epoch()
                assert sorted(job.output) == [("late", "1"), ("late", "2"), ("main", 1), ("main", 2)]

    def test_connected_streams_have_a_type_if_both_methods_agree(self):
        class Same(CoMapFunction):
            def map1(self, value) -> int: ...
            def map2(self, value) -> int | None: ...

        class Other(CoMapFunction):
            def map1(self, value) -> int: ...
            def map2(self, value) -> str: ...

        class Many(CoProcessFunction):
            def process_element1(self, value, ctx) -> Iterator[Event]: ...
            def process_element2(self, value, ctx) -> Iterator[Event]: ...

        first = stream()
        both = first.connect(first.map(unannotated))
        assert both.map(Same()).get_type() is int
        assert both.map(Other()).get_type() == PICKLED
        assert both.process(Many()).get_type() is Event


class TestWithState:
    def test_the_annotation_determines_the_types_of_result_and_state(self):
        def count(value, n: int | None) -> tuple[str, int]:
            return f"{value}{n}", (n or 0) + 1

        def many(value, n) -> tuple[list[str], int | None]:
            return [value] * (n or 0), (n or 0) + 1

        counted = keyed("a", "a", "a").map_with_state(count).uid("count")
        assert counted.get_type() is str
        repeated = counted.key_by(lambda value: 0).flat_map_with_state(many)
        assert repeated.get_type() is str
        with JobHarness(repeated) as job:
            job.epoch()
            assert job.output == ["a1", "a2", "a2"]
            assert job.state("_state", 0, "count") == 3

    def test_the_parameter_annotation_determines_the_state_type_otherwise(self):
        def fresh(value, seen: Optional[bool]):
            return not seen, True

        with JobHarness(keyed("a", "b").filter_with_state(fresh)) as job:
            job.epoch()
            assert job.output == ["a"]
            assert job.state("_state", 0) is True

    def test_a_state_type_is_required_without_an_annotation(self):
        with pytest.raises(GraphError, match=r"map_with_state needs the type of the state.*-> tuple\[Result, State\]"):
            keyed().map_with_state(lambda value, state: (value, state))

    def test_the_error_for_a_wrong_state_type_names_the_annotation(self):
        def wrong(value, n) -> tuple[str, int]:
            return value, "three"

        with JobHarness(keyed("a").map_with_state(wrong)) as job, pytest.raises(UserFunctionFailed) as failed:
            job.epoch()
        line = wrong.__code__.co_firstlineno
        assert f"the annotation of {wrong.__qualname__} ({__file__}:{line}); state_type=... overrides it" in str(
            failed.value
        )
        with JobHarness(keyed("a").map_with_state(wrong, str)) as job:
            job.epoch()
            assert job.state("_state", 0) == "three"


def larger(first: Any, second: Any) -> Event:
    return first if first.amount > second.amount else second


class TestReduce:
    def test_a_reduce_takes_its_type_from_the_stream_or_the_function(self):
        class Larger(ReduceFunction):
            def reduce(self, value1, value2) -> Event: ...

        assert keyed().reduce(larger).get_type() is Event
        assert keyed().reduce(Larger()).get_type() is Event
        assert stream().map(to_int).key_by(lambda value: 0).sum().get_type() is int

    def stored(self, storage, function, *records):
        results = stream(*records).key_by(lambda record: 0).reduce(function).uid("larger")
        with JobHarness(results, storage=storage) as job:
            job.epoch()
            return job.output, job.state("_reduce", 0)

    def test_state_written_before_the_annotation_was_added_is_readable(self, tmp_path):
        def without(first, second):
            return larger(first, second)

        storage = LocalStorage(str(tmp_path))
        a, b, c, d = Event("a", 2.0), Event("b", 1.0), Event("c", 3.0), Event("d", 4.0)
        assert self.stored(storage, without, a) == ([a], a)
        assert self.stored(storage, larger, a, b) == ([a], a)
        assert self.stored(storage, larger, a, b, c) == ([c], c)
        # The reverse would need the class to read the state, but no annotation names the class any more.
        with pytest.raises(UserFunctionFailed, match=r"is stored as .* or any' but declared as 'value any'"):
            self.stored(storage, without, a, b, c, d)

    def test_a_class_can_gain_a_field_with_a_default(self, tmp_path):
        def version(*fields):
            made = make_dataclass("Version", fields)
            made.__module__ = __name__

            def latest(first, second):
                return first

            latest.__annotations__ = {"return": made}
            return made, latest

        def after(storage, *fields):
            first, latest = version(("n", int))
            self.stored(storage, latest, first(1))
            second, latest = version(*fields)
            return self.stored(storage, latest, None, second(2, "celsius")), second

        results, second = after(LocalStorage(str(tmp_path / "a")), ("n", int), ("unit", str, "kelvin"))
        assert results == ([second(1, "kelvin")], second(1, "kelvin"))
        with pytest.raises(UserFunctionFailed, match=r"In field 'unit' of Version: it is new, .* has no default"):
            after(LocalStorage(str(tmp_path / "b")), ("n", int), ("unit", str))

    def test_a_subclass_keeps_its_fields_in_typed_state(self):
        with JobHarness(keyed(Event("a"), Click("b", 5.0, url="/")).reduce(larger), backend="filesystem") as job:
            job.epoch()
            job.push(Event("c", 1.0))
            job.epoch()
            assert job.output == [Event("a"), Click("b", 5.0, url="/"), Click("b", 5.0, url="/")]
            assert job.state("_reduce", 0) == Click("b", 5.0, url="/")


def tagged_event():
    event = Event("a")
    event.seen = True
    return event


MISFITS = [
    (float, 1),
    (int, True),
    (int, Level.LOW),
    (int, 2**70),
    (int, None),
    (int, "text"),
    (str, "\ud800"),
    (tuple[str, int], ["a", 1]),
    (tuple[str, int], Point(1, 2)),
    (tuple[int, tuple[int, int]], (1, (2, True))),
    (tuple[int, tuple[int, str]], (1, (2, "\ud800"))),
    (tuple[int, tuple[int, int]], (1, 2)),
    (Point, (1, 2)),
    (Point, Point(1, "y")),
    (Event, Event(1)),
    (Event, Event("\ud800")),
    (Event, Click("a", url="/")),
    (Event, tagged_event()),
    (Event, Event("a", 1)),
    (Event, {"user": "a"}),
    (tuple[Point, datetime], (Point(1, 2), datetime(2024, 1, 1, fold=1))),
]


def shown(value: Any) -> Any:
    """Return everything about a value that a program could observe."""
    return type(value), repr(value), repr(getattr(value, "__dict__", None)), getattr(value, "fold", None)


def results(records, annotation, parallelism, **options):
    """Return the results of a program with annotated functions, through exchanges and state, in two epochs."""

    def give(value):
        return value

    def latest(first, second):
        return second

    if annotation is not None:
        give.__annotations__ = latest.__annotations__ = {"return": annotation}
    given = stream(*records).map(give).rebalance().map(give).key_by(lambda value: 0)
    with JobHarness(given.reduce(latest).uid("latest"), parallelism=parallelism, **options) as job:
        job.epoch()
        job.push(*records[:1])
        job.epoch()
        state = job.state("_reduce", 0)
        parts = list(state) if type(state) is tuple else []
        return [shown(value) for value in job.output], shown(state), [shown(part) for part in parts]


@pytest.mark.parametrize("backend", ["memory", "filesystem"])
@pytest.mark.parametrize(("annotation", "value"), MISFITS)
def test_a_value_that_violates_its_annotation_stays_unchanged(annotation, value, backend):
    for records in ([value], [value, Event("x"), value]):
        assert results(records, annotation, 2, backend=backend) == results(records, None, 2, backend=backend)


small = st.integers(-(2**65), 2**65) | st.booleans() | st.floats() | st.text(max_size=3) | st.none()
tuples = st.tuples(small, small) | st.tuples(small, st.tuples(small, small)) | st.builds(Point, small, small)
events = st.builds(Event, small, small, st.lists(small, max_size=2)) | st.builds(Click, st.text(), url=st.text())
annotations = st.sampled_from(
    (int, str, float, bool, int | None, tuple[int, str], tuple[int, tuple[str, float]], list[int], dict[str, int])
    + (Point, Event, Click, Event | None, tuple[str, Event], list[Event], Decimal, datetime)
)
moments = st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.decimals()
anything = small | tuples | events | moments | st.lists(events, max_size=2) | st.tuples(small, events)


@settings(max_examples=30, deadline=None)
@given(st.lists(anything, min_size=1, max_size=6), annotations, st.integers(1, 2))
def test_an_annotation_never_changes_the_results(records, annotation, parallelism):
    assert results(records, annotation, parallelism) == results(records, None, parallelism)


def edge_types(annotation):
    """Return whether the records between two tasks are typed."""

    def give(value): ...

    give.__annotations__ = {"return": annotation}
    results = stream().map(give).rebalance().map(unannotated)
    graph = build(results.get_execution_environment()._graph, 2)
    return [edge.pickled_type is not None for edge in graph.edges]


def test_an_annotation_is_used_only_if_typed_records_are_cheaper():
    assert [edge_types(hint) for hint in (Event, Point, list[Event], tuple[int, tuple[int, int]])] == [[True]] * 4
    assert [edge_types(hint) for hint in (int, tuple[str, int], list[int], dict[str, int])] == [[False]] * 4
