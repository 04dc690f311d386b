"""The comparison of two revisions, with measurements chosen by the test."""

from pathlib import Path
from typing import Any

import pytest

from bench import pairs
from bench.result import Result


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Set the seconds per epoch on the base and on this checkout. No process is started for either."""
    chosen: dict[str, Any] = {"base": 1.0, "here": 1.0, "order": []}

    def measure(line: Any, way: str, inputs: Path, tree: Path) -> Result:
        name = "here" if tree == pairs.HERE else "base"
        chosen["order"].append(name)
        return Result(records=1, seconds=[chosen[name]])

    monkeypatch.setattr(pairs, "measure", measure)
    return chosen


def compare(monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench.pairs", "--base", "HEAD", "--pairs", "3", *more])
    return pairs.main()


def test_the_check_fails_when_the_checkout_is_slower_than_the_limit(
    speed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed["here"] = 1.1
    assert compare(monkeypatch, "--check") == 1
    speed["here"] = 1.05
    assert compare(monkeypatch, "--check") == 0


def test_the_order_within_pairs_alternates(speed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare(monkeypatch) == 0
    assert speed["order"] == ["base", "here", "here", "base", "base", "here"]
