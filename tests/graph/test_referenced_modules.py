"""The modules that executors must be able to import are read off the graph."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.builder import build
from penstock.graph.referenced_modules import referenced_modules


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    monkeypatch.syspath_prepend(tmp_path)

    def module(name: str, text: str) -> Any:
        (tmp_path / f"{name}.py").write_text(text)
        loaded = __import__(name)
        monkeypatch.setitem(sys.modules, name, loaded)
        return loaded

    return module


def modules_of(*functions: Any) -> list[str]:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1])
    for function in functions:
        stream = stream.map(function)
    stream.print()
    return referenced_modules(build(env._graph, 1))


@pytest.fixture
def by_value() -> Any:
    """This file's functions travel by value, as those of a program do."""
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this)
    yield
    cloudpickle.unregister_pickle_by_value(this)


@pytest.mark.usefixtures("by_value")
class TestOfAGraph:
    def test_modules_that_functions_use_are_found(self, module: Callable[[str, str], Any]) -> None:
        first, second = module("first_of_ours", "def f(n): return n"), module("second_of_ours", "def f(n): return n")
        assert modules_of(lambda n: first.f(n), lambda n: second.f(n)) == ["first_of_ours", "second_of_ours"]

    def test_the_module_of_an_imported_function_is_found(self, module: Callable[[str, str], Any]) -> None:
        assert modules_of(module("third_of_ours", "def f(n): return n").f) == ["third_of_ours"]

    def test_the_module_of_a_class_in_a_closure_is_found(self, module: Callable[[str, str], Any]) -> None:
        cls = module("fourth_of_ours", "class C: pass").C
        assert modules_of(lambda n: cls()) == ["fourth_of_ours"]

    def test_modules_that_only_the_driver_uses_are_not_found(self, module: Callable[[str, str], Any]) -> None:
        module("fifth_of_ours", "")
        assert modules_of(lambda n: f"fifth_of_ours {n}") == []

    def test_the_modules_of_base_classes_are_found(self) -> None:
        class Order(msgspec.Struct):
            number: int

        assert "msgspec" in modules_of(lambda n: Order(n))

    def test_python_and_penstock_are_left_out(self) -> None:
        assert modules_of(lambda n: Path(str(n)), lambda n: build, str) == []
