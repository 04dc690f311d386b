"""The programs of docs/write and docs/migrate run in process, and give what they assert."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "migrate/pyflink": 4,
    "write/async-io": 2,
    "write/batch": 2,
    "write/event-time": 2,
    "write/keys": 2,
    "write/state": 5,
    "write/types": 3,
    "write/windows": 4,
}
"""How many programs each page has."""
DECLARATIONS = {"migrate/pyflink": 1}
"""How many of them assert nothing, because a later one runs what they declare."""


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("page", "count"), PAGES.items())
def test_the_programs_of_a_page_give_what_they_assert(page: str, count: int) -> None:
    blocks = programs(page)
    assert len(blocks) == count
    silent = [block for block in blocks if not re.search(r"^ *assert ", block, re.MULTILINE)]
    assert len(silent) == DECLARATIONS.get(page, 0)
    names: dict[str, Any] = {"__name__": page.replace("/", "_").replace("-", "_")}
    for block in blocks:
        exec(block, names)


def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    file = tmp_path / "test_samples.py"
    file.write_text("\n\n".join(programs("write/testing")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout
