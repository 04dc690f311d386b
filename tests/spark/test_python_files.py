"""Modules that a program ships to its workers."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_workers_import_a_file_added_by_the_program(make_env: Any, tmp_path: Path) -> None:
    (tmp_path / "shipped_to_workers.py").write_text("def double(n):\n    return 2 * n\n")
    env = make_env()
    env.add_python_file(str(tmp_path / "shipped_to_workers.py"))

    def use(number: int) -> int:
        import shipped_to_workers  # type: ignore[import-not-found]

        return int(shipped_to_workers.double(number))

    with env.from_collection([1, 2, 3]).map(use).execute_and_collect() as results:
        assert results.next() in (2, 4, 6)
        assert len([*results]) == 2
