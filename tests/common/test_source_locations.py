"""Lines in archives that workers import from are shown as the driver's lines."""

from pathlib import Path

import pytest

from penstock.common import source_locations
from penstock.common.error_format import short_form
from penstock.common.source_locations import local_location, remember_shipped
from penstock.errors import PenstockError, SourceLocation


@pytest.fixture(autouse=True)
def _nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_locations, "_shipped", {})


def test_a_line_in_a_shipped_archive_is_shown_with_the_drivers_source(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "helpers.py").write_text("one\ntwo = 2\n")
    remember_shipped("jobs-1.zip", str(tmp_path))
    location = SourceLocation("/work/app-1/0/./jobs-1.zip/pkg/helpers.py", 2, "f")
    assert local_location(location).file == str(tmp_path / "pkg" / "helpers.py")
    assert short_form(PenstockError("Broken.", locations=(location,))).splitlines()[1] == "    two = 2"


def test_other_lines_stay_unchanged() -> None:
    remember_shipped("jobs-1.zip", "/x")
    for file in ("/work/jobs.zip/a.py", "<stdin>", "job.py"):
        assert local_location(SourceLocation(file, 1, "f")).file == file
