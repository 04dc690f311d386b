"""The programs of docs/connect/sinks.md run."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs/connect/sinks.md").read_text()


def test_sinks_of_the_page_show_what_it_asserts() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(programs) == 3
    names: dict[str, Any] = {"__name__": "sinks_page"}
    for program in programs:
        assert "assert " in program
        exec(program, names)
