"""The programs of these pages run and pass their assertions."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "programs"), [("operator-state", 4), ("state-ttl", 2)])
def test_programs_of_a_page_pass_their_assertions(page: str, programs: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    assert all(re.search(r"assert .*job\.output", block) for block in blocks)
    assert len(blocks) == programs
    names: dict[str, Any] = {"__name__": f"{page.replace('-', '_')}_page"}
    for block in blocks:
        exec(block, names)
