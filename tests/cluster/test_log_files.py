"""Rotation of log files that several processes have open."""

import os
from pathlib import Path

import pytest

from penstock.cluster.log_files import rotate


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "jobmanager.log"


def contents(log: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in log.parent.iterdir()}


def test_a_small_file_stays(log: Path) -> None:
    log.write_text("line")
    rotate(log, 5, 3)
    assert contents(log) == {"jobmanager.log": "line"}


def test_a_large_file_moves_to_the_first_number_and_older_ones_move_up(log: Path) -> None:
    for text in ("first", "second", "third", "fourth"):
        log.write_text(text)
        rotate(log, 1, 3)
    assert contents(log) == {
        "jobmanager.log": "",
        "jobmanager.log.1": "fourth",
        "jobmanager.log.2": "third",
        "jobmanager.log.3": "second",
    }


def test_one_rotated_file_is_kept_if_so_configured(log: Path) -> None:
    for text in ("first", "second"):
        log.write_text(text)
        rotate(log, 1, 1)
    assert contents(log) == {"jobmanager.log": "", "jobmanager.log.1": "second"}


def test_a_process_that_has_the_file_open_continues_at_its_start(log: Path) -> None:
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"before")
    rotate(log, 1, 3)
    os.write(writer, b"after")
    os.close(writer)
    assert contents(log) == {"jobmanager.log": "after", "jobmanager.log.1": "before"}
