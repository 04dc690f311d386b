"""The page about state as tables: its examples are one program, and it runs."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "query" / "state-tables.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _run(blocks: list[str], **names: Any) -> None:
    names["__name__"] = "state_tables_page"
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)


def _is_of(block: str, engine: str) -> bool:
    return {"duckdb": "import duckdb", "spark": "to_spark(spark)"}[engine] in block


def _without(*engines: str) -> list[str]:
    return [block for block in BLOCKS if not any(_is_of(block, engine) for engine in engines)]


@pytest.fixture(autouse=True)
def a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_its_examples_give_what_they_say() -> None:
    assert len(_without("duckdb", "spark")) == len(BLOCKS) - 2
    assert all("assert " in block for block in BLOCKS[1:])
    _run(_without("duckdb", "spark"))


def test_duckdb_reads_a_savepoint_in_one_line() -> None:
    _run([*BLOCKS[:2], *(block for block in BLOCKS if _is_of(block, "duckdb"))])
