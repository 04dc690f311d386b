"""Warnings to a program: streams without a sink, settings without effect, other drivers of its job."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.overridden import ProgramConfiguration
from penstock.common.source_locations import warn
from penstock.control.server import ControlPoint
from penstock.datastream import KeyedProcessFunction, MapFunction, OutputTag, StreamExecutionEnvironment
from penstock.datastream.checks import warn_of_missing_sinks
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.control_point import warn_of_other_drivers
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.submission import log_overridden
from penstock.driver.control_messages import Answer, Describe, Description, Request
from penstock.graph.logical import GraphError
from penstock.testing import JobHarness


def line_of(function: Callable[[], object]) -> tuple[str, int, str]:
    """Return the location of the call's only warning, and its text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    (warning,) = caught
    return warning.filename, warning.lineno, str(warning.message)


@pytest.fixture
def env(launched: Callable[[dict[str, str]], None]) -> StreamExecutionEnvironment:
    launched({"parallelism.default": "8", "state.checkpoints.fs.key": "hidden"})
    return StreamExecutionEnvironment.get_execution_environment()


class TestAStreamWithoutASink:
    def test_a_stream_without_a_sink_causes_a_warning_at_the_users_line(self, env) -> None:
        env.from_collection([1]).map(str).name("text")
        declared = sys._getframe().f_lineno - 1
        called = lambda: warn_of_missing_sinks(env._graph)  # noqa: E731
        file, line, text = line_of(called)
        assert (file, line) == (__file__, called.__code__.co_firstlineno)
        assert text.startswith(
            f"No sink reads the results of these operators, so they are discarded: 'text' (line {declared})."
        )

    def test_a_branch_without_a_sink_causes_a_warning(self, env) -> None:
        numbers = env.from_collection([1])
        numbers.map(str).name("shown").print()
        numbers.map(str).name("forgotten")
        _, _, text = line_of(lambda: warn_of_missing_sinks(env._graph))
        assert "'forgotten'" in text
        assert "'shown'" not in text

    def test_a_stream_whose_branches_all_have_sinks_causes_no_warning(self, env) -> None:
        numbers = env.from_collection([1])
        numbers.map(str).sink_to(DiscardingSink())
        numbers.add_sink(print)
        numbers.process(lambda value, ctx: [value]).get_side_output(OutputTag("side")).print()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_missing_sinks(env._graph)


class TestAWarning:
    def test_a_warning_in_a_penstock_thread_is_logged(self, caplog, tmp_path: Path) -> None:
        """Such a warning has no user line to point to."""
        import threading

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            thread = threading.Thread(target=warn, args=["Careful."])
            thread.start()
            thread.join()
        assert caplog.messages == ["Careful."]

    def test_a_savepoint_warning_points_to_the_line_that_takes_it(self, tmp_path: Path) -> None:
        class Count(KeyedProcessFunction):
            def open(self, runtime_context: Any) -> None:
                self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

            def process_element(self, value: Any, ctx: Any) -> Any:
                self.count.update(1)
                yield value

        stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1]).key_by(lambda n: n)
        with JobHarness(stream.process(Count())) as job:
            job.epoch()
            make = lambda: job.savepoint(tmp_path)  # noqa: E731
            file, line, text = line_of(make)
        assert (file, line) == (__file__, make.__code__.co_firstlineno)
        assert "holds state of operators without a uid" in text


class TestASettingOfTheCommandLine:
    def overridden(self, env: StreamExecutionEnvironment) -> list[str]:
        return [str(each) for each in env._configuration.overridden()]  # type: ignore[attr-defined]

    def test_an_overridden_setting_is_reported_with_both_values_and_the_line(self, env) -> None:
        env.set_parallelism(4)
        line = sys._getframe().f_lineno - 1
        assert self.overridden(env) == [
            f"The program sets parallelism.default to 4 ({__file__}:{line}), which overrides 8 from the command line."
        ]

    @pytest.mark.parametrize(
        "change",
        [
            lambda env: env.get_configuration().set_integer("parallelism.default", 4),
            lambda env: env.configure(Configuration.from_dict({"parallelism.default": "4"})),
            lambda env: env.get_config().set_parallelism(4),
        ],
    )
    def test_every_way_to_override_a_setting_is_reported(self, env, change) -> None:
        change(env)
        (text,) = self.overridden(env)
        assert f"to 4 ({__file__}:{change.__code__.co_firstlineno})" in text

    def test_a_removed_setting_is_reported(self, env) -> None:
        env.get_config().set_parallelism(-1)
        (text,) = self.overridden(env)
        assert text.startswith("The program removes parallelism.default (")

    def test_the_value_of_a_possible_secret_is_hidden(self, env) -> None:
        env.get_configuration().set_string("state.checkpoints.fs.key", "mine")
        (text,) = self.overridden(env)
        assert "to *** (" in text
        assert "hidden" not in text

    def test_a_setting_restored_to_its_value_is_not_reported(self, env) -> None:
        env.set_parallelism(4).set_parallelism(8).set_max_parallelism(64)
        assert self.overridden(env) == []

    def test_a_command_line_setting_silently_overrides_the_configuration(self, env) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"parallelism.default": "4"}))
        assert (env.get_parallelism(), self.overridden(env)) == (8, [])

    def test_an_overridden_job_name_is_reported(self, launched, caplog) -> None:
        launched({"pipeline.name": "theirs"})
        env = StreamExecutionEnvironment.get_execution_environment()
        for name in ("theirs", None, "mine"):
            log_overridden(env, name)
        (text,) = caplog.messages
        assert text.startswith(f"The program sets pipeline.name to mine ({__file__}:")

    @pytest.mark.parametrize("of_the_program", [True, False])
    def test_a_setting_ignored_by_the_programs_session_is_reported(self, of_the_program, launched, caplog) -> None:
        launched({"spark.executor.memory": "4g", "spark.app.name": "x"})
        env = StreamExecutionEnvironment.get_execution_environment()
        conf = {"spark.app.name": "x"}
        env._spark = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))  # type: ignore[assignment]
        env._session_is_the_programs = of_the_program
        log_overridden(env, None)
        expected = "The program started Spark itself, so spark.executor.memory=4g on the command line has no effect."
        assert caplog.messages == ([expected] if of_the_program else [])

    def test_overridden_settings_survive_a_copy_of_the_configuration(self) -> None:
        settings = ProgramConfiguration({"a": "1", "b": "2"}, {"a": "1"})
        settings.add_all(Configuration.from_dict({"a": "3"}))
        assert Configuration(settings).to_dict() == {"a": "3", "b": "2"}


class TestAnotherDriverOfTheJob:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        return str(tmp_path / "control")

    @pytest.fixture
    def running(self, directory: str) -> Iterator[None]:
        def answer(request: Request) -> Answer:
            assert isinstance(request, Describe)
            return Description(
                id="77" * 16,
                name="counts",
                status="RUNNING",
                pid=4711,
                started=0,
                epochs=12,
                restarts=1,
                parallelism={},
                checkpoints="/checkpoints/counts",
            )

        point = ControlPoint(directory, "77" * 16, answer)
        yield
        point.close()

    def warned(self, checkpoints: str, caplog: pytest.LogCaptureFixture, **settings: str) -> list[str]:
        warn_of_other_drivers("counts", checkpoints, Configuration.from_dict(settings))
        return caplog.messages

    def test_another_driver_with_the_same_checkpoints_causes_a_warning(self, running, directory, caplog) -> None:
        (text,) = self.warned("/checkpoints/counts", caplog, **{"penstock.control.dir": directory})
        assert text.startswith("Another driver of job 'counts' is running: process ")
        assert text.endswith(f"Stop one of them: penstock stop {'77' * 16}")
        assert caplog.records[0].levelno == logging.WARNING

    def test_a_driver_with_other_checkpoints_causes_no_warning(self, running, directory, caplog) -> None:
        assert self.warned("/checkpoints/other", caplog, **{"penstock.control.dir": directory}) == []

    def test_other_drivers_are_not_searched_without_a_control_directory(
        self, running, directory, tmp_path, caplog
    ) -> None:
        (tmp_path / "file").touch()
        assert self.warned("/checkpoints/counts", caplog, **{"penstock.control.dir": str(tmp_path / "file")}) == []
        settings = {"penstock.control.dir": directory, "penstock.control.enabled": "false"}
        assert self.warned("/checkpoints/counts", caplog, **settings) == []


class AsyncOpen(MapFunction):
    async def open(self, runtime_context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value


class OpenWithMore(AsyncOpen):
    def open(self, runtime_context: Any, more: int) -> None:  # type: ignore[override]
        pass


class OpenWithADefault(AsyncOpen):
    def open(self, *arguments: Any, more: int = 1) -> None:  # type: ignore[override]
        pass


class TestAnOpenThatCannotBeCalled:
    @pytest.mark.parametrize(
        ("function", "problem"),
        [
            (AsyncOpen(), "AsyncOpen.open is an async function, which would never run."),
            (OpenWithMore(), "OpenWithMore.open"),
        ],
    )
    def test_an_invalid_open_is_refused_where_the_function_is_passed(self, env, function, problem) -> None:
        with pytest.raises(GraphError) as caught:
            env.from_collection([1]).map(function)
        assert caught.value.problem.startswith(problem)
        assert "def open(self, runtime_context)" in caught.value.fix

    def test_an_open_with_other_parameter_names_is_accepted(self, env) -> None:
        env.from_collection([1]).map(OpenWithADefault())


class TestASavepointIntoABadDirectory:
    def test_a_bad_savepoint_directory_is_refused_before_the_input_ends(self) -> None:
        from penstock.savepoint.format import SavepointError

        stream = StreamExecutionEnvironment.get_execution_environment().from_collection([]).uid("n")
        with JobHarness(stream) as job:
            job.push(1).epoch()
            with pytest.raises(SavepointError, match="/dev/null is not a directory"):
                job.stop_with_savepoint("/dev/null/x", drain=True)
            job.push(2).epoch()
            assert job.output == [1, 2]
