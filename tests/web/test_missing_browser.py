"""Without a browser, the tests that need one are skipped with the reason; in CI they run, and so fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("ci", "skipped"), [("", True), ("true", False)])
def test_tests_that_need_a_browser_are_skipped_without_one_but_not_in_ci(ci, skipped, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from browsing import needs_browser as it; print(it.args[0], it.kwargs['reason'])"],
        cwd=Path(__file__).parent,
        env={**os.environ, "CI": ci, "CHROMIUM": str(tmp_path / "chromium")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"{skipped} ")
    assert "make browser" in done.stdout or "pip install" in done.stdout
