"""Settings that are refused before Spark starts, and reports about ended processes. These tests need no JVM."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from chaos.servers.ports import free_port
from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.epoch_errors import EngineLost
from penstock.graph.builder import build
from penstock.spark.jvm import end_quietly, jvm_death
from penstock.spark.lost import lost
from penstock.spark.session import default_conf
from penstock.spark.start_checks import SparkUnreachable, check_before_start, check_master


def test_sparks_records_of_past_epochs_are_bounded() -> None:
    """An epoch is a job, stages, an execution and a progress report: Spark keeps a thousand of each by default."""
    settings = default_conf("local[2]")
    most = {
        "spark.ui.retainedJobs": 100,
        "spark.ui.retainedStages": 200,
        "spark.ui.retainedTasks": 2000,
        "spark.sql.ui.retainedExecutions": 50,
        "spark.sql.streaming.numRecentProgressUpdates": 10,
    }
    assert {key: bound for key, bound in most.items() if not 0 < int(settings.get(key, "0")) <= bound} == {}
    assert settings["spark.sql.classic.shuffleDependency.fileCleanup.enabled"] == "true"


class TestFilesForSpark:
    @pytest.mark.parametrize("key", ["spark.jars", "spark.submit.pyFiles", "spark.files", "spark.archives"])
    @pytest.mark.parametrize("name", ["/nowhere/a.jar", "file:///nowhere/a.jar", "nowhere.jar", "/nowhere/*.jar"])
    def test_a_missing_file_is_refused_with_its_setting(self, key: str, name: str, tmp_path: Path) -> None:
        there = tmp_path / "there.jar"
        there.touch()
        with pytest.raises(BadSetting, match=rf"^{key} names '") as caught:
            check_before_start({key: f"{there}, {name}"})
        assert f"names '{name}', but this file does not exist." in caught.value.problem

    def test_existing_and_remote_files_are_accepted(self, tmp_path: Path) -> None:
        (tmp_path / "a file.jar").touch()
        names = [
            f"{tmp_path}/a file.jar",
            f"file://{tmp_path}/a%20file.jar",
            f"{tmp_path}/*.jar",
            f"{tmp_path}/a file.jar#name",
            "hdfs://cluster/a.jar",
            "https://host/a.jar",
            "local:/opt/a.jar",
            "",
        ]
        check_before_start({"spark.archives": ",".join(names), "spark.master": "local[2]"})

    def test_a_missing_file_is_refused_at_the_line_that_adds_it(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(
            BadSetting, match=r"^add_jars names 'file:///nowhere/kafka.jar', but this file does not exist"
        ):
            env.add_jars("file:///nowhere/kafka.jar")

    def test_a_missing_file_is_refused_before_spark_starts(self) -> None:
        """The session is never started."""
        env = StreamExecutionEnvironment(Configuration.from_dict({"spark.jars": "/nowhere/a.jar"}))
        if SparkContext._active_spark_context is None:
            with pytest.raises(BadSetting, match=r"^spark.jars names '/nowhere/a.jar'"):
                env.spark  # noqa: B018
            assert SparkContext._gateway is None

    @pytest.mark.parametrize("package", ["spark-avro", "org.apache.spark:spark-avro", "a:b:c:d", "a b:c:d"])
    def test_packages_must_be_maven_coordinates(self, package: str) -> None:
        with pytest.raises(BadSetting, match=r"which is not a Maven coordinate"):
            check_before_start({"spark.jars.packages": f"org.apache.spark:spark-avro_2.13:4.0.0,{package}"})


class TestTheMaster:
    def test_a_master_on_an_unknown_host_is_refused(self) -> None:
        with pytest.raises(SparkUnreachable, match=r"the host 'nowhere.invalid' is unknown"):
            check_master("spark://nowhere.invalid:7077")

    def test_a_master_at_a_closed_port_is_refused(self) -> None:
        port = free_port()
        with pytest.raises(SparkUnreachable, match=rf"127.0.0.1:{port}: Connection refused"):
            check_master(f"spark://127.0.0.1:{port}")

    def test_one_reachable_master_of_several_is_enough(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            check_master(f"spark://nowhere.invalid:7077,127.0.0.1:{listener.getsockname()[1]}")
            check_master(f"k8s://https://127.0.0.1:{listener.getsockname()[1]}")

    @pytest.mark.parametrize("master", ["spark://nowhere", "spark://", "spark://host:port"])
    def test_a_master_without_a_port_is_refused(self, master: str) -> None:
        with pytest.raises(BadSetting, match=r"is not a host and a port"):
            check_master(master)

    @pytest.mark.parametrize("master", ["foo", "sparkk://host:7077", "host:7077", "mesos://host"])
    def test_an_unknown_kind_of_master_is_refused(self, master: str) -> None:
        with pytest.raises(BadSetting, match=r"which is not a valid Spark master"):
            check_master(master)

    @pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", ""])
    def test_a_master_without_an_address_is_left_to_spark(self, master: str) -> None:
        check_master(master)


class TestAJvmThatHasEnded:
    @pytest.fixture
    def process(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        yield process
        process.kill()
        process.communicate()

    @pytest.mark.parametrize(
        ("number", "cause"),
        [
            (signal.SIGKILL, "it was killed by SIGKILL, as by the kernel when memory runs out"),
            (signal.SIGTERM, "it was killed by SIGTERM"),
        ],
    )
    def test_a_killed_jvm_is_reported_with_the_signal(self, process: Any, number: signal.Signals, cause: str) -> None:
        process.send_signal(number)
        death = jvm_death()
        assert death is not None
        assert death.problem.startswith(f"Spark's JVM (process {process.pid}) has ended: {cause}")
        assert not death.retryable

    def test_an_exited_jvm_is_reported_with_its_exit_code(self, process: Any) -> None:
        process.communicate(b"\n")
        assert "it exited with code 0" in str(jvm_death())

    def test_a_live_jvm_is_not_reported(self, process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.spark.jvm._REAPED_S", 0.01)
        assert jvm_death() is None

    def test_a_jvm_started_by_another_process_is_not_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for gateway in (None, SimpleNamespace(proc=None)):
            monkeypatch.setattr(SparkContext, "_gateway", gateway)
            assert jvm_death() is None

    def test_a_dying_jvm_causes_no_traceback_of_the_accumulator_server(self) -> None:
        handled = []
        server = SimpleNamespace(handle_error=lambda request, address: handled.append(request))
        context = SimpleNamespace(_accumulatorServer=server)
        end_quietly(context)
        end_quietly(context)
        for error in (EOFError(), ConnectionResetError(), ValueError()):
            try:
                raise error
            except Exception:
                server.handle_error(type(error), None)
        assert handled == [ValueError]


class TestAWorkerThatEnded:
    TEXT = (
        "An error occurred while calling o165.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 1 in stage 8.0 failed 1 times, most recent failure: Lost task 1.0 in stage 8.0 (TID 3): "
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    )

    def lost(self, stages: list[int], text: str = TEXT) -> EngineLost:
        env = StreamExecutionEnvironment.get_execution_environment()
        words = env.from_collection(["a"]).map(str).name("parse")
        words.key_by(len).reduce(min).name("shortest").print()
        return lost(RuntimeError(text), build(env._graph, 2), stages)

    def test_a_dead_worker_is_reported_with_its_operators(self) -> None:
        assert "while it ran subtask 1 of shortest -> " in str(self.lost([7, 8]))
        assert "while it ran Collection -> parse, without reporting an error." in str(self.lost([8, 9]))
        assert "os._exit()" in self.lost([7, 8]).fix

    @pytest.mark.parametrize("stages", [[], [1, 2], [8]])
    def test_a_dead_worker_is_reported_without_operators_if_the_stage_is_unknown(self, stages: list[int]) -> None:
        assert "while it ran a task, without reporting an error." in str(self.lost(stages))

    def test_other_losses_are_reported_unchanged(self) -> None:
        assert str(self.lost([7, 8], "Executor lost")) == "Executor lost"
        of_py4j = "An error occurred while calling o165.collectToPython.\n: org.apache.spark.SparkException: Full disk"
        assert str(self.lost([7, 8], of_py4j)) == "org.apache.spark.SparkException: Full disk"
