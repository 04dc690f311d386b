"""The programs of docs/write and docs/migrate run in process, and give what they assert."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "write/async-io": 2,
    "write/batch": 2,
    "write/event-time": 2,
    "write/keys": 2,
    "write/state": 5,
    "write/types": 3,
    "write/windows": 4,
}
"""How many programs each page has."""


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("page", "count"), PAGES.items())
def test_the_programs_of_a_page_give_what_they_assert(page: str, count: int) -> None:
    blocks = programs(page)
    assert len(blocks) == count
    assert all(re.search(r"^ *assert ", block, re.MULTILINE) for block in blocks)
    names: dict[str, Any] = {"__name__": page.replace("/", "_").replace("-", "_")}
    for block in blocks:
        exec(block, names)
