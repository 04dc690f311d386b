"""What a program sets in its environment, and what it asks of it."""

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
    def test_is_another_view_of_the_environment(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_config().set_parallelism(3).set_max_parallelism(64)
        assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 64)
        env.set_parallelism(5)
        assert (config.get_parallelism(), config.get_max_parallelism()) == (5, 64)
        assert env.from_collection([1]).get_execution_config().get_parallelism() == 5

    def test_the_default_parallelism_is_sparks_again(self) -> None:
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

    def test_job_parameters_that_are_set_later_do_not_reach_a_job_that_was_built(
        self, env: StreamExecutionEnvironment
    ) -> None:
        config = env.get_config().set_global_job_parameters({"greeting": "hello"})
        env.from_collection([1]).print()
        built = env._physical()
        config.set_global_job_parameters({"limit": 3})
        assert (built.job_parameters, env._physical().job_parameters) == ({"greeting": "hello"}, {"limit": "3"})

    def test_without_generated_uids_every_operator_needs_one(self, env: StreamExecutionEnvironment) -> None:
        assert env.get_config().has_auto_generated_uids_enabled()
        env.get_config().disable_auto_generated_uids()
        source = env.from_collection([1])
        sink = source.map(lambda value: value).name("Double").uid("double").sink_to(DiscardingSink())
        with pytest.raises(GraphError, match=r"these operators have no uid: 'Collection', 'DiscardingSink'\. Give"):
            env.get_execution_plan()
        source.uid("numbers")
        sink.uid("nowhere")
        assert {node["uid"] for node in json.loads(env.get_execution_plan())["nodes"]} == {
            "numbers",
            "double",
            "nowhere",
        }

    def test_the_sink_that_collects_needs_no_uid(self, env: StreamExecutionEnvironment) -> None:
        env.get_config().disable_auto_generated_uids()
        env.from_collection([1]).uid("numbers")._end("Collect", CollectSink())
        assert env.get_execution_plan()

    def test_generated_uids_can_be_allowed_again(self, env: StreamExecutionEnvironment) -> None:
        env.get_config().disable_auto_generated_uids().enable_auto_generated_uids()
        env.from_collection([1]).sink_to(DiscardingSink())
        assert env.get_execution_plan()


class TestCheckpoints:
    def test_are_aligned(self, env: StreamExecutionEnvironment) -> None:
        assert not env.is_unaligned_checkpoints_enabled()
        assert not env.is_force_unaligned_checkpoints()

    def test_an_interval_alone_leaves_the_mode(self) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"execution.checkpointing.mode": "AT_LEAST_ONCE"}))
        assert env.enable_checkpointing(100).get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
        env.enable_checkpointing(100, CheckpointingMode.EXACTLY_ONCE)
        assert env.get_checkpointing_consistency_mode() is CheckpointingMode.EXACTLY_ONCE


class TestWhatSparkIsGiven:
    def test_jars_are_added_one_after_the_other(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        for name in ("a.jar", "b.jar"):
            (tmp_path / name).touch()
        env.add_jars(f"file://{tmp_path}/a.jar", f"{tmp_path}/b.jar")
        env.add_jars("hdfs://cluster/c.jar")
        jars = env.get_configuration().get_string("spark.jars", "")
        assert jars == f"file://{tmp_path}/a.jar,{tmp_path}/b.jar,hdfs://cluster/c.jar"

    def test_the_interpreter_of_the_workers(self, env: StreamExecutionEnvironment) -> None:
        env.set_python_executable("/opt/python/bin/python")
        assert env.get_configuration().get_string("spark.pyspark.python", "") == "/opt/python/bin/python"

    def test_what_spark_reads_at_its_start_is_refused_later(self, env: StreamExecutionEnvironment) -> None:
        env._spark = object()  # type: ignore[assignment]
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars, which Spark reads when it starts"):
            env.add_jars("hdfs://cluster/a.jar")
        with pytest.raises(BadSetting, match=r"set_python_executable sets spark\.pyspark\.python"):
            env.set_python_executable("python")

    def test_a_session_that_runs_already_is_too_late_as_well(
        self, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.spark.session.running_session", lambda: object())
        env.add_jars("hdfs://cluster/a.jar")
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars.* and it has started"):
            _ = env.spark
        with pytest.raises(BadSetting, match=r"add_jars sets spark\.jars.* and it has started"):
            env.from_spark(SimpleNamespace(sparkSession=object()))  # type: ignore[arg-type]

    def test_a_python_file_must_be_one(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match="is a directory, and Spark ships files: zip it"):
            env.add_python_file(str(tmp_path))
        with pytest.raises(BadSetting, match=r"there is no file '.*/nothing\.py'"):
            env.add_python_file(str(tmp_path / "nothing.py"))
        with pytest.raises(BadSetting, match="only local paths"):
            env.add_python_file("hdfs://host/module.py")


def test_descriptions_are_shown_in_the_plan(env: StreamExecutionEnvironment) -> None:
    mapped = env.from_collection([1]).map(lambda value: value).name("Double").set_description("twice the number")
    mapped.sink_to(DiscardingSink()).set_description("thrown away").slot_sharing_group("late")
    _, double, sink = json.loads(env.get_execution_plan())["nodes"]
    assert (double["type"], double["contents"]) == ("Double", "twice the number")
    assert (sink["contents"], sink["slot_sharing_group"]) == ("thrown away", "late")


def test_a_sink_can_be_kept_out_of_the_chain_before_it(env: StreamExecutionEnvironment) -> None:
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
    """Is tried before Spark starts: no session is there in these tests, and none is made."""

    def refused(self, **settings: str) -> PenstockError:
        config = Configuration.from_dict({key.replace("__", "."): value for key, value in settings.items()})
        env = StreamExecutionEnvironment(config)
        env.from_collection([1]).print()
        with pytest.raises(PenstockError) as error:
            env.execute("numbers")
        assert env._spark is None
        return error.value

    def test_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a user's own")
        error = self.refused(state__checkpoints__dir=str(tmp_path / "file" / "checkpoints"))
        assert f"Nothing can be written to {tmp_path}/file/checkpoints/numbers: {tmp_path}/file is not" in error.problem
        assert "state.checkpoints.dir" in error.fix
        assert (tmp_path / "file").read_text() == "a user's own"

    def test_in_a_bucket_that_is_missing_is_refused(self, s3_options: dict[str, str]) -> None:
        settings = {f"state__checkpoints__fs__{key}": value for key, value in s3_options.items()}
        error = self.refused(state__checkpoints__dir="s3://no-such-bucket/x", **settings)
        assert "in s3://no-such-bucket/x/numbers: FileNotFoundError: The specified bucket does not exist" in str(error)
        assert "state.checkpoints.fs.*" in error.fix
        assert s3_options["secret"] not in str(error)

    def test_on_a_store_that_does_not_answer_is_refused(self) -> None:
        error = self.refused(
            state__checkpoints__dir="s3://bucket/x",
            state__checkpoints__fs__endpoint_url="http://127.0.0.1:1",
            state__checkpoints__fs__key="my-key",
            state__checkpoints__fs__secret="my-secret",
            state__checkpoints__fs__config_kwargs='{"retries": {"max_attempts": 0}}',
        )
        assert "http://127.0.0.1:1" in str(error)
        assert "my-" not in str(error)

    def test_with_an_option_that_the_store_does_not_know_is_refused(self, s3_options: dict[str, str]) -> None:
        settings = {f"state__checkpoints__fs__{key}": value for key, value in s3_options.items()}
        error = self.refused(
            state__checkpoints__dir="s3://bucket/x", **settings, state__checkpoints__fs__client_kwargs='{"nonsense": 1}'
        )
        assert "nonsense" in str(error)

    def test_in_the_memory_of_one_process_is_refused(self) -> None:
        error = self.refused(state__checkpoints__dir="memory://x")
        assert "tasks could not read it" in str(error)
        assert "state.backend" in error.fix

    def test_with_a_password_in_its_uri_is_refused_without_showing_it(self) -> None:
        error = self.refused(state__checkpoints__dir="s3://me:hidden@bucket/x")
        assert "hidden" not in str(error)
