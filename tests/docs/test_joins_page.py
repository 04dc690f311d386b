"""The programs of docs/write/joins.md run, and give what they assert."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs/write/joins.md").read_text()


def test_its_programs_give_what_they_say() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert all("assert job.output" in block or "assert sorted(job.output" in block for block in blocks)
    assert len(blocks) == 2
    names: dict[str, Any] = {"__name__": "joins_page"}
    for block in blocks:
        exec(block, names)
