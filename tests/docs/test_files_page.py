"""The programs of docs/connect/files.md run, and give what they assert."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/connect/files.md").read_text()


def test_the_programs_of_the_page_give_what_they_assert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert sum("assert " in program for program in programs) == 2
    names: dict[str, Any] = {"__name__": "files_page"}
    for program in programs:
        exec(program, names)
