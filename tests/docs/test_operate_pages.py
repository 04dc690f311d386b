"""The pages below docs/operate: their programs run, and print the output that the pages show."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPERATE = ROOT / "docs" / "operate"


def blocks(page: str, kind: str = "python") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (OPERATE / f"{page}.md").read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("page", "assertions"),
    [
        ("checkpoints", 1),
        ("checkpoint-storage", 0),
        ("savepoints", 2),
        ("upgrades", 1),
        ("rescaling", 1),
        ("recovery", 1),
    ],
)
def test_programs_of_a_page_give_what_it_says(page: str, assertions: int) -> None:
    """Without Spark: test_commands_to_a_client_work_on_spark runs those that use a client."""
    programs = [block for block in blocks(page) if "execute_async" not in block]
    assert sum("assert " in program for program in programs) == assertions
    names: dict[str, Any] = {"__name__": page.replace("-", "_")}
    for program in programs:
        exec(compile(program, f"{page}.md", "exec"), names)


@pytest.mark.spark
@pytest.mark.parametrize("page", ["rescaling", "savepoints"])
def test_commands_to_a_client_work_on_spark(page: str, tmp_path: Path) -> None:
    from penstock.common import Configuration
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.spark.session import start_session

    [program] = [block for block in blocks(page) if "execute_async" in block]
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints"), "execution.checkpointing.interval": "200 ms"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env._spark = start_session({"spark.master": "local[2]"})
    frame = env.spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    pairs = env.from_spark(frame).uid("rate").map(lambda row: (row.value % 3, 1))
    pairs.key_by(lambda pair: pair[0]).sum(1).uid("count").add_sink(lambda pair: None).uid("out")
    names: dict[str, Any] = {"env": env}
    exec(program.replace("/var/savepoints", str(tmp_path / "savepoints")), names)
    client = names["client"]
    if page == "rescaling":
        client.cancel()
    else:
        client.result()
        assert len(list((tmp_path / "savepoints").iterdir())) == 2
        assert Path(names["path"], "_metadata").exists()


def test_the_program_of_guarantees_promises_what_the_page_shows(tmp_path: Path) -> None:
    program, *_ = blocks("guarantees")
    (tmp_path / "counts.py").write_text(program)
    (tmp_path / "log").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "info", "counts.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    [shown] = blocks("guarantees", "text")
    beginnings = [line.removesuffix("…") for line in shown.splitlines()]
    printed = done.stdout.splitlines()
    assert [line[: len(beginning)] for line, beginning in zip(printed, beginnings, strict=True)] == beginnings
