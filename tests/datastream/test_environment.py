"""Settings that a program makes in its environment and reads from it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common import Configuration, ExecutionConfig
from penstock.common.options import BadSetting
from penstock.connectors.driver_sinks import CollectSink
from penstock.datastream import CheckpointingMode, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError
from penstock.testing import keyed_harness
from penstock.testing.harness import JobHarness


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


class TestExecutionConfig:
    def test_the_execution_config_is_a_view_of_the_environment(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_config().set_parallelism(3).set_max_parallelism(64)
        assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 64)
        env.set_parallelism(5)
        assert (config.get_parallelism(), config.get_max_parallelism()) == (5, 64)
        assert env.from_collection([1]).get_execution_config().get_parallelism() == 5

    def test_the_default_parallelism_falls_back_to_sparks(self) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"spark.master": "local[3]"}))
        env.set_parallelism(5)
        env.get_config().set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN)
        assert env.get_parallelism() == 5
        env.get_config().set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT)
        assert env.get_parallelism() == 3

    def test_functions_read_the_global_job_parameters(self, env: StreamExecutionEnvironment) -> None:
        class Greet(KeyedProcessFunction):
            def open(self, runtime_context: Any) -> None:
                self.greeting = runtime_context.get_job_parameter("greeting", "none")
                self.limit = runtime_context.get_job_parameter("limit", "none")
                self.other = runtime_context.get_job_parameter("other", "none")

            def process_element(self, value: Any, ctx: Any) -> Any:
                yield self.greeting, self.limit, self.other

        env.get_config().set_global_job_parameters({"greeting": "hello", "limit": 3})
        assert env.get_config().get_global_job_parameters() == {"greeting": "hello", "limit": "3"}
        with JobHarness(env.from_collection(["a"]).key_by(lambda value: value).process(Greet())) as job:
            job.epoch()
            assert job.output == [("hello", "3", "none")]

    def test_job_parameters_set_later_do_not_reach_a_job_already_built(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_config().set_global_job_parameters({"greeting": "hello"})
        env.from_collection([1]).print()
        built = env._physical()
        config.set_global_job_parameters({"limit": 3})
        assert (built.job_parameters, env._physical().job_parameters) == ({"greeting": "hello"}, {"limit": "3"})

    def test_every_operator_needs_a_uid_if_generation_is_disabled(self, env: StreamExecutionEnvironment) -> None:
        assert env.get_config().has_auto_generated_uids_enabled()
        env.get_config().disable_auto_generated_uids()
        source = env.from_collection([1])
        sink = source.map(lambda value: value).name("Double").uid("double").sink_to(DiscardingSink())
        with pytest.raises(GraphError, match=r"these operators have no uid: 'Collection', 'DiscardingSink'\. Set"):
            env.get_execution_plan()
        source.uid("numbers")
        sink.uid("nowhere")
        assert {node["uid"] for node in json.loads(env.get_execution_plan())["nodes"]} == {
            "numbers",
            "double",
            "nowhere",
        }

    def test_the_collecting_sink_does_not_need_a_uid(self, env: StreamExecutionEnvironment) -> None:
        env.get_config().disable_auto_generated_uids()
        env.from_collection([1]).uid("numbers")._end("Collect", CollectSink())
        assert env.get_execution_plan()

    def test_generated_uids_can_be_enabled_again(self, env: StreamExecutionEnvironment) -> None:
        env.get_config().disable_auto_generated_uids().enable_auto_generated_uids()
        env.from_collection([1]).sink_to(DiscardingSink())
        assert env.get_execution_plan()


class TestCheckpoints:
    def test_checkpoints_are_aligned(self, env: StreamExecutionEnvironment) -> None:
        assert not env.is_unaligned_checkpoints_enabled()
        assert not env.is_force_unaligned_checkpoints()

    def test_setting_only_the_interval_keeps_the_mode(self) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"execution.checkpointing.mode": "AT_LEAST_ONCE"}))
        assert env.enable_checkpointing(100).get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
        env.enable_checkpointing(100, CheckpointingMode.EXACTLY_ONCE)
        assert env.get_checkpointing_consistency_mode() is CheckpointingMode.EXACTLY_ONCE


class TestWhatSparkIsGiven:
    def test_jars_are_appended(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        for name in ("a.jar", "b.jar"):
            (tmp_path / name).touch()
        env.add_jars(f"file://{tmp_path}/a.jar", f"{tmp_path}/b.jar")
        env.add_jars("hdfs://cluster/c.jar")
        jars = env.get_configuration().get_string("spark.jars", "")
        assert jars == f"file://{tmp_path}/a.jar,{tmp_path}/b.jar,hdfs://cluster/c.jar"

    def test_the_python_executable_is_passed_to_spark(self, env: StreamExecutionEnvironment) -> None:
        env.set_python_executable("/opt/python/bin/python")
        assert env.get_configuration().get_string("spark.pyspark.python", "") == "/opt/python/bin/python"

    @pytest.mark.parametrize(
        ("settings", "used"),
        [
            ({"python.executable": "/a/python"}, "/a/python"),
            ({"python.executable": "/a/python", "spark.pyspark.python": "/b/python"}, "/b/python"),
        ],
    )
    def test_flinks_setting_for_the_python_executable_is_passed_to_spark(
        self, settings: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[dict[str, str]] = []
        monkeypatch.setattr("penstock.spark.session.running_session", lambda: None)
        monkeypatch.setattr("penstock.spark.session.start_session", lambda conf: started.append(conf))
        _ = StreamExecutionEnvironment(Configuration.from_dict(settings)).spark
        assert started == [{"spark.pyspark.python": used}]

    def test_settings_that_spark_reads_at_startup_are_refused_later(self, env: StreamExecutionEnvironment) -> None:
        env._spark = object()  # type: ignore[assignment]
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars, which Spark reads only at startup"):
            env.add_jars("hdfs://cluster/a.jar")
        with pytest.raises(BadSetting, match=r"set_python_executable sets spark\.pyspark\.python"):
            env.set_python_executable("python")

    def test_settings_that_spark_reads_at_startup_are_refused_with_a_running_session(
        self, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.spark.session.running_session", lambda: object())
        env.add_jars("hdfs://cluster/a.jar")
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars.* but Spark has already started"):
            _ = env.spark
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars.* but Spark has already started"):
            env.from_spark(SimpleNamespace(sparkSession=object()))  # type: ignore[arg-type]


def test_descriptions_are_shown_in_the_plan(env: StreamExecutionEnvironment) -> None:
    mapped = env.from_collection([1]).map(lambda value: value).name("Double").set_description("twice the number")
    mapped.sink_to(DiscardingSink()).set_description("thrown away").slot_sharing_group("late")
    _, double, sink = json.loads(env.get_execution_plan())["nodes"]
    assert (double["type"], double["contents"]) == ("Double", "twice the number")
    assert (sink["contents"], sink["slot_sharing_group"]) == ("thrown away", "late")


def test_a_sink_can_be_excluded_from_the_preceding_chain(env: StreamExecutionEnvironment) -> None:
    def chains() -> int:
        return len({node["chain"] for node in json.loads(env.get_execution_plan())["nodes"]})

    sink = env.from_collection([1]).key_by(lambda value: value).map(lambda value: value).sink_to(DiscardingSink())
    assert chains() == 2
    sink.disable_chaining()
    assert chains() == 3


def test_operators_of_different_max_parallelism_are_chained(env: StreamExecutionEnvironment) -> None:
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    mapped = env.from_collection([1]).key_by(lambda value: value).map(lambda value: value)
    mapped.set_max_parallelism(64).map(lambda value: value).set_max_parallelism(128).sink_to(DiscardingSink())
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert nodes[1]["chain"] == nodes[2]["chain"]


def test_a_closed_environment_still_runs_programs(env: StreamExecutionEnvironment) -> None:
    env.close()
    with keyed_harness(lambda value, ctx: [value]) as job:
        job.push("a").epoch()
        assert job.output == ["a"]


class TestTheCheckpointDirectory:
    """The checkpoint directory is validated before Spark starts, so these tests need no session."""

    def refused(self, **settings: str) -> PenstockError:
        config = Configuration.from_dict({key.replace("__", "."): value for key, value in settings.items()})
        env = StreamExecutionEnvironment(config)
        env.from_collection([1]).print()
        with pytest.raises(PenstockError) as error:
            env.execute("numbers")
        assert env._spark is None
        return error.value

    def test_an_unwritable_checkpoint_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a user's own")
        error = self.refused(state__checkpoints__dir=str(tmp_path / "file" / "checkpoints"))
        assert f"Cannot write to {tmp_path}/file/checkpoints/numbers: {tmp_path}/file is not" in error.problem
        assert "state.checkpoints.dir" in error.fix
        assert (tmp_path / "file").read_text() == "a user's own"

    def test_a_checkpoint_directory_in_a_missing_bucket_is_refused(self, s3_options: dict[str, str]) -> None:
        settings = {f"state__checkpoints__fs__{key}": value for key, value in s3_options.items()}
        error = self.refused(state__checkpoints__dir="s3://no-such-bucket/x", **settings)
        assert "in s3://no-such-bucket/x/numbers: FileNotFoundError: The specified bucket does not exist" in str(error)
        assert "state.checkpoints.fs.*" in error.fix
        assert s3_options["secret"] not in str(error)

    def test_a_checkpoint_directory_on_an_unreachable_store_is_refused(self) -> None:
        error = self.refused(
            state__checkpoints__dir="s3://bucket/x",
            state__checkpoints__fs__endpoint_url="http://127.0.0.1:1",
            state__checkpoints__fs__key="my-key",
            state__checkpoints__fs__secret="my-secret",
            state__checkpoints__fs__config_kwargs='{"retries": {"max_attempts": 0}}',
        )
        assert "http://127.0.0.1:1" in str(error)
        assert "my-" not in str(error)

    def test_an_unknown_store_option_is_refused(self, s3_options: dict[str, str]) -> None:
        settings = {f"state__checkpoints__fs__{key}": value for key, value in s3_options.items()}
        error = self.refused(
            state__checkpoints__dir="s3://bucket/x", **settings, state__checkpoints__fs__client_kwargs='{"nonsense": 1}'
        )
        assert "nonsense" in str(error)

    def test_a_checkpoint_directory_in_process_memory_is_refused(self) -> None:
        error = self.refused(state__checkpoints__dir="memory://x")
        assert "tasks could not read it" in str(error)
        assert "state.backend" in error.fix

    def test_a_checkpoint_uri_with_a_password_is_refused_without_showing_it(self) -> None:
        error = self.refused(state__checkpoints__dir="s3://me:hidden@bucket/x")
        assert "hidden" not in str(error)
