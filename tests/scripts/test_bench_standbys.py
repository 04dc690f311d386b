"""The table of `make bench-standbys`: the limits, and what fails the check."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.standbys import __main__ as bench

MEASURED = {"ordinary": [900.0, 1000.0, 1100.0]}


@pytest.fixture
def exit_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[list[float]], list[list[float]]], int]:
    """Return a function from the epochs after each loss, without and with a standby, to the exit code."""
    monkeypatch.setattr("sys.argv", ["bench.standbys", "--check", "--scale", "0.00001"])

    def run(without: list[list[float]], with_one: list[list[float]]) -> int:
        def measured(command: list[str], **_: Any) -> dict[str, Any]:
            assert Path(command[command.index("--input") + 1]).is_dir()
            return MEASURED | {"after": with_one if command[command.index("--standbys") + 1] == "1" else without}

        monkeypatch.setattr(bench, "run_json", measured)
        return bench.main()

    return run


SOON = [1900.0, 1000.0, 1000.0, 1000.0, 1000.0]
LATE = [9000.0, 1000.0, 1000.0, 1000.0, 1000.0]
SLOW = [1900.0, 1000.0, 1000.0, 1000.0, 1600.0]


def test_one_standby_must_keep_the_first_epoch_short(exit_code: Any) -> None:
    assert exit_code([LATE, LATE, LATE], [SOON, SOON, LATE]) == 0
    assert exit_code([LATE, LATE, LATE], [SOON, LATE, LATE]) == 1


def test_the_fifth_epoch_must_be_ordinary_in_both_cases(exit_code: Any) -> None:
    assert exit_code([SLOW, SLOW, LATE], [SOON, SOON, SOON]) == 1
    assert exit_code([SOON, SOON, SOON], [SLOW, SLOW, SOON]) == 1
