"""What the submission of a cluster's job asks of Spark."""

import pytest

from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.submission import limit_cores


def environment(**settings: str) -> StreamExecutionEnvironment:
    given = {"spark.master": "spark://host:7077", "parallelism.default": "2"}
    configuration = Configuration.from_dict(given | {key.replace("_", "."): value for key, value in settings.items()})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).key_by(lambda n: n).reduce(lambda a, b: a + b).set_parallelism(3).print()
    return env


@pytest.mark.parametrize(
    ("settings", "cores"),
    [({}, "3"), ({"spark_task_cpus": "2"}, "6"), ({"spark_cores_max": "8"}, "8")],
    ids=["widest operator", "two cores per task", "the user's number"],
)
def test_a_job_takes_as_many_cores_as_its_widest_operator_needs(settings: dict[str, str], cores: str) -> None:
    env = environment(**settings)
    limit_cores(env, env._physical())
    assert env.get_configuration().get_string("spark.cores.max", "") == cores
