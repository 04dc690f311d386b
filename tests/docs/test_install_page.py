"""docs/start/install.md: its check prints what it shows, and its extras are those of the package."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import JobHarness

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/start/install.md").read_text()
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_check_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    declared, execute = program.rstrip().rsplit("\n", 1)
    assert execute == 'env.execute("check")'
    names: dict[str, Any] = {"__name__": "check"}
    exec(declared, names)
    with JobHarness(names["env"]) as job:
        job.run()
    assert capsys.readouterr().out == SHOWN[1]


def test_the_version_shown_is_ours() -> None:
    assert SHOWN[0].startswith(f"Penstock {penstock.__version__}, Spark 4.3.")


def test_the_extras_are_those_of_the_package() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert named == extras.keys() - {"bench", "dev", "docs"}
