"""The programs of these pages run and pass their assertions."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "programs"), [("write/operator-state", 4), ("write/state-ttl", 2)])
def test_programs_of_a_page_pass_their_assertions(page: str, programs: int) -> None:
    found = blocks(page)
    assert all(re.search(r"assert .*job\.output", block) for block in found)
    assert len(found) == programs
    names: dict[str, Any] = {"__name__": page.replace("/", "_").replace("-", "_")}
    for block in found:
        exec(block, names)


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


def test_the_start_page_shows_the_first_example() -> None:
    (program,) = blocks("index")
    first = (DOCS.parent / "examples" / "first.py").read_text()
    assert ast.dump(ast.parse(program)) == ast.dump(ast.parse(first))


def test_the_metrics_page_counts_records() -> None:
    (program,) = blocks("reference/metrics")
    assert "assert " in program
    exec(program, {"__name__": "metrics_page"})


def test_the_program_of_troubleshooting_fails_with_a_fix() -> None:
    (program,) = blocks("operate/troubleshooting")
    with pytest.raises(PenstockError, match="A value of type dict cannot be a key") as failed:
        exec(program, {"__name__": "troubleshooting_page"})
    assert "Key by one of its values" in str(failed.value)
