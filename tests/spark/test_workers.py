"""Python workers are forked from a daemon with all imports done, before the first epoch needs them."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.daemon import ending_quietly, without_archives
from penstock.spark.session import environment_variable, worker_python
from penstock.spark.warm_up import WarmUp


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed PySpark that contains an archive of itself, as pip installs it."""
    (tmp_path / "site" / "pyspark" / "python" / "lib").mkdir(parents=True)
    (tmp_path / "site" / "pyspark" / "__init__.py").touch()
    return tmp_path / "site"


def test_archives_of_the_installed_pyspark_are_removed_from_the_path(site: Path) -> None:
    archive = str(site / "pyspark" / "python" / "lib" / "pyspark.zip")
    assert without_archives([archive, "/elsewhere", str(site)]) == ["/elsewhere", str(site)]


def test_other_archives_stay_on_the_path(site: Path) -> None:
    path = ["/users/own.zip", "/opt/spark/python/lib/pyspark.zip", str(site)]
    assert without_archives(path) == path


def test_the_pyspark_archive_is_kept_if_pyspark_is_not_installed(tmp_path: Path) -> None:
    path = [str(tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"), str(tmp_path)]
    assert without_archives(path) == path


def test_a_worker_whose_task_was_given_up_exits_silently() -> None:
    def worker(error: type[Exception] | None) -> int:
        if error is not None:
            raise error
        return 0

    assert ending_quietly(worker)(None) == 0
    assert ending_quietly(worker)(BrokenPipeError) == 1
    with pytest.raises(ValueError):
        ending_quietly(worker)(ValueError)


@pytest.mark.parametrize(
    ("given", "environment", "used"),
    [
        ({"spark.pyspark.python": "/set"}, {"PYSPARK_PYTHON": "/variable"}, "/set"),
        ({}, {"PYSPARK_PYTHON": "/variable"}, "/variable"),
        ({}, {}, sys.executable),
    ],
)
def test_the_setting_wins_over_the_variable_and_the_variable_over_the_driver(
    given: dict[str, str], environment: dict[str, str], used: str
) -> None:
    assert worker_python(given, environment) == used


@pytest.mark.parametrize("before", [None, "/variable"])
def test_a_session_leaves_the_variable_of_the_process_unchanged(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_PYTHON", before)
    with environment_variable("PYSPARK_PYTHON", "/set"):
        assert os.environ["PYSPARK_PYTHON"] == "/set"
    assert os.environ.get("PYSPARK_PYTHON") == before


def _seen(_: int) -> tuple[str, bool]:
    import pyspark

    return pyspark.__file__, "penstock.spark.daemon" in sys.orig_argv


@pytest.mark.spark
def test_workers_use_the_installed_pyspark_and_come_from_our_daemon(make_env: Any) -> None:
    env: StreamExecutionEnvironment = make_env()
    seen = set(env.from_collection([1, 2, 3]).map(_seen).execute_and_collect())
    assert all(ours for _, ours in seen)
    assert not [file for file, _ in seen if ".zip" in file]


@pytest.mark.spark
def test_a_warm_up_unpickles_the_graph_in_one_worker_per_core_and_ignores_failures(session: Any) -> None:
    opened: Any = session.sparkContext.accumulator(0)

    class Graph:
        def open(self) -> None:
            opened.add(1)
            raise RuntimeError("the first epoch will report it")

    WarmUp(session.sparkContext).start(Graph(), 100).join()  # type: ignore[arg-type]
    assert opened.value == session.sparkContext.defaultParallelism
