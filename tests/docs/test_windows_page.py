"""The program of docs/windows.md runs, and the page uses existing names."""

import ast
import re
from pathlib import Path
from typing import Any

import penstock.datastream.window
from penstock.datastream.windowed import WindowedStream
from penstock.testing import JobHarness

PAGE = (Path(__file__).parents[2] / "docs/windows.md").read_text()


def run() -> dict[str, Any]:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    return names


def said_of(stream: str) -> list[Any]:
    (sentence,) = re.findall(rf"`{re.escape(stream)}` has (.*?)[;.](?: |,|$)", PAGE.replace(", because", ". because"))
    return [ast.literal_eval(text) for text in re.findall(r"`(\(.*?\))`", sentence)]


def test_the_program_of_the_windows_page_produces_the_documented_output() -> None:
    expected = said_of("counts")
    assert len(expected) == 3
    with JobHarness(run()["counts"]) as job:
        assert sorted(job.run(2)) == sorted(expected)


def test_the_late_record_of_the_windows_page_is_late() -> None:
    names = run()
    with JobHarness(names["counts"].get_side_output(names["late"])) as job:
        assert job.run(2) == said_of("counts.get_side_output(late)") == [("bob", 1, 500)]


def test_names_on_the_windows_page_exist() -> None:
    mentioned = set(re.findall(r"`([A-Z]\w+(?:Windows|Trigger|Evictor|Assigner))\b", PAGE))
    assert len(mentioned) > 15
    assert all(hasattr(penstock.datastream.window, name) for name in mentioned)
    for method in ("trigger", "evictor", "reduce", "aggregate", "side_output_late_data"):
        assert f"`{method}(" in PAGE
        assert hasattr(WindowedStream, method)
