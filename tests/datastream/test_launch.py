"""The launch context that a launcher such as `penstock run` passes to the environments of a program."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.launch import LaunchContext, launch, launch_context
from penstock.errors import SourceLocation


@pytest.fixture(autouse=True)
def _restored(launched: Callable[[dict[str, str]], None]) -> Iterator[None]:
    """Rely on the fixture `launched`, which restores the context at the end of each test."""
    return None


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


class Inspected(BaseException):
    pass


class TestSettings:
    def test_launch_settings_reach_every_environment(self) -> None:
        launch(LaunchContext(settings={"parallelism.default": "5"}))
        assert [environment().get_parallelism() for _ in range(2)] == [5, 5]

    def test_launch_settings_reach_environments_of_other_threads(self) -> None:
        launch(LaunchContext(settings={"parallelism.default": "5"}))
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(environment().get_parallelism()))
        thread.start()
        thread.join()
        assert found == [5]

    def test_launch_settings_do_not_change_an_existing_environment(self) -> None:
        launch(LaunchContext(settings={"parallelism.default": "5"}))
        env = environment()
        launch(LaunchContext(settings={"parallelism.default": "6"}))
        assert (env.get_parallelism(), environment().get_parallelism()) == (5, 6)

    def test_launch_settings_accept_alternative_keys(self) -> None:
        launch(LaunchContext(settings={"execution.savepoint.path": "/saved"}))
        assert environment().get_configuration().get_string("execution.state-recovery.path", "") == "/saved"

    def test_launch_settings_are_empty_without_a_launcher(self) -> None:
        assert dict(LaunchContext().settings) == {}


def test_an_inspected_job_does_not_run() -> None:
    seen: list[Any] = []

    def inspect(*job: Any) -> NoReturn:
        seen.append(job)
        raise Inspected

    launch(LaunchContext(inspect=inspect))
    env = environment()
    env.from_collection([1]).print()
    with pytest.raises(Inspected):
        env.execute("orders")
    ((name, logical, physical, configuration),) = seen
    assert name == "orders"
    assert logical is env._graph
    assert physical.chains
    assert configuration is env.get_configuration()
    assert env._spark is None


class TestWhatWasNotExecuted:
    def test_an_unexecuted_environment_is_recorded_with_its_first_source(self) -> None:
        not_executed: dict[int, SourceLocation | None] = {}
        launch(LaunchContext(not_executed=not_executed))
        env = environment()
        assert not_executed == {}
        first = env.from_collection([1])
        env.from_collection([2])
        assert list(not_executed.values()) == [first._node.location]

    def test_each_unexecuted_environment_is_recorded(self) -> None:
        not_executed: dict[int, SourceLocation | None] = {}
        launch(LaunchContext(not_executed=not_executed, inspect=_refuse))
        first, second = environment(), environment()
        for env in (first, second):
            env.from_collection([1]).print()
        with pytest.raises(Inspected):
            first.execute()
        assert list(not_executed) == [id(second)]

    def test_unexecuted_environments_are_recorded_only_on_request(self) -> None:
        launch(LaunchContext())
        environment().from_collection([1]).print()
        assert launch_context().not_executed is None


def _refuse(*job: Any) -> NoReturn:
    raise Inspected
