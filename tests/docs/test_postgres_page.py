"""The program of docs/connect/postgres.md runs against a real server, and gives what it asserts."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/connect/postgres.md").read_text()


def test_the_program_of_the_page_writes_the_totals_it_asserts(postgres: str) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "assert " in program
    address = "postgresql://flow:secret@localhost/shop"
    assert address in program
    exec(program.replace(address, postgres), {"__name__": "postgres_page"})
