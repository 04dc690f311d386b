"""The programs of docs/connect/dead-letters.md run, and give what they assert."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/connect/dead-letters.md").read_text()


def test_its_programs_give_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "dead_letters_page"}
    for block in blocks:
        assert "assert" in block
        exec(block, names)
