"""Pages whose programs run, and give what they assert."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "programs"), [("write/operator-state", 4), ("write/state-ttl", 2)])
def test_its_programs_give_what_they_say(page: str, programs: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    assert all(re.search(r"assert .*job\.output", block) for block in blocks)
    assert len(blocks) == programs
    names: dict[str, Any] = {"__name__": page.replace("/", "_").replace("-", "_")}
    for block in blocks:
        exec(block, names)
