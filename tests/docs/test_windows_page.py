"""docs/write/windows.md: its names are there. test_write_pages.py runs its programs."""

import re
from pathlib import Path

import penstock.datastream.window
from penstock.datastream.windowed import WindowedStream

PAGE = (Path(__file__).parents[2] / "docs/write/windows.md").read_text()


def test_every_name_on_the_page_exists() -> None:
    mentioned = set(re.findall(r"`([A-Z]\w+(?:Windows|Trigger|Evictor|Assigner))\b", PAGE))
    assert len(mentioned) > 15
    assert all(hasattr(penstock.datastream.window, name) for name in mentioned)
    for method in ("trigger", "evictor", "reduce", "aggregate", "side_output_late_data", "allowed_lateness"):
        assert f"`{method}(" in PAGE
        assert hasattr(WindowedStream, method)
