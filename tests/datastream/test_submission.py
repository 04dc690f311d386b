"""What the submission of a cluster's job asks of Spark."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.submission import check_locations, limit_cores
from penstock.driver.assignment import Assignment
from penstock.driver.slots import slots_needed


@pytest.fixture
def as_a_cluster(launched: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Programs of this test are jobs of a cluster. The settings of each Spark session that they start."""
    launched({})
    launch(LaunchContext(assignment=cast(Assignment, SimpleNamespace(job_id="1" * 32))))
    started: list[dict[str, str]] = []
    monkeypatch.setattr("penstock.spark.session.running_session", lambda: None)
    monkeypatch.setattr("penstock.spark.session.start_session", started.append)
    return started


def environment(**settings: str) -> StreamExecutionEnvironment:
    given = {"spark.master": "spark://host:7077"} | {key.replace("_", "."): value for key, value in settings.items()}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.from_collection([1]).key_by(lambda n: n).reduce(lambda a, b: a + b).set_parallelism(3).print()
    return env


@pytest.mark.parametrize(
    ("settings", "cores"),
    [({}, "3"), ({"spark_task_cpus": "2"}, "6"), ({"spark_cores_max": "8"}, "8")],
    ids=["widest operator", "two cores per task", "the user's number"],
)
def test_a_job_takes_as_many_cores_as_its_widest_operator_needs(settings: dict[str, str], cores: str) -> None:
    env = environment(parallelism_default="2", **settings)
    limit_cores(env._configuration, slots_needed(env._physical()))
    assert env.get_configuration().get_string("spark.cores.max", "") == cores


@pytest.mark.parametrize(
    ("settings", "parallelism"),
    [
        ({}, 2),
        ({"spark_cores_max": "8", "spark_task_cpus": "2"}, 4),
        ({"spark_cores_max": "8", "spark_default_parallelism": "3"}, 3),
        ({"spark_cores_max": "8", "parallelism_default": "5"}, 5),
    ],
)
def test_the_graph_of_a_clusters_job_is_built_without_spark(
    settings: dict[str, str], parallelism: int, as_a_cluster: list[dict[str, str]]
) -> None:
    env = environment(**settings)
    physical = env._physical()
    assert env.get_parallelism() == parallelism
    assert slots_needed(physical) == max(parallelism, 3)
    assert as_a_cluster == []


def test_a_clusters_job_that_starts_spark_itself_takes_the_cores_of_its_default_parallelism(
    as_a_cluster: list[dict[str, str]],
) -> None:
    for settings in ({}, {"parallelism_default": "4"}, {"spark_cores_max": "8"}):
        _ = environment(**settings).spark
    assert [each["spark.cores.max"] for each in as_a_cluster] == ["2", "4", "8"]


def test_a_program_that_runs_by_hand_takes_all_cores(
    launched: Callable[[dict[str, str]], None], as_a_cluster: list[dict[str, str]]
) -> None:
    launched({})
    _ = environment(parallelism_default="4").spark
    assert "spark.cores.max" not in as_a_cluster[0]


@pytest.mark.parametrize("key", ["state.checkpoints.dir", "state.savepoints.dir", "execution.state-recovery.path"])
def test_a_clusters_job_refuses_relative_paths(key: str, as_a_cluster: list[dict[str, str]]) -> None:
    env = environment(parallelism_default="1")
    env.get_configuration().set_string(key, "here/it")
    with pytest.raises(BadSetting, match=f"{key} is 'here/it', a relative path, but"):
        env.execute("job")
    for path in ("/here", "file:///here", "s3://bucket/here"):
        check_locations(Configuration.from_dict({key: path}))
