"""One Spark session for all tests that need one, and environments that run on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    from penstock.spark.session import start_session

    session = start_session({"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture
def make_env(session: Any, tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Build environments on the shared session: `make_env(parallelism=2, records=10, checkpoints=True, **settings)`."""

    def make(
        parallelism: int = 2, records: int = 0, checkpoints: bool = False, **settings: str
    ) -> StreamExecutionEnvironment:
        configuration = Configuration.from_dict(
            {"penstock.epoch.max-records": records, "state.backend.local-dir": str(tmp_path / "replicas")}
        )
        if checkpoints:
            configuration.set_string("state.checkpoints.dir", str(tmp_path / "checkpoints"))
            configuration.set_string("execution.checkpointing.interval", "100 ms")
            configuration.set_string(
                "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
            )
        configuration.add_all(Configuration.from_dict({key.replace("__", "."): v for key, v in settings.items()}))
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env._spark = session
        env.set_parallelism(parallelism)
        return env

    return make
