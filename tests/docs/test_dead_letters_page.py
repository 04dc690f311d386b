"""The programs of docs/connect/dead-letters.md run and pass their assertions."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/connect/dead-letters.md").read_text()


def test_the_programs_of_the_page_give_what_they_assert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "dead_letters_page"}
    for block in blocks:
        assert "assert" in block
        exec(block, names)
