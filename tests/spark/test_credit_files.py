"""Credits and backlogs between a driver and the planners of its sources, without a JVM."""

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.generated import DataGeneratorSource, NumberSequenceSource
from penstock.connectors.source import Positions
from penstock.spark.credit_files import CreditFiles, CreditsOfSource
from penstock.spark.planner import PlannedSource, Planner, ReadAllAvailable, ReadMaxRows


def test_credits_reach_the_planner_and_backlogs_reach_the_driver(tmp_path: Path) -> None:
    driver = CreditFiles(tmp_path, ["a source", "another/one"])
    planner = CreditsOfSource(driver.path("another/one") or "")
    assert planner.limit(None) is None
    assert driver.backlog("another/one") is None
    for number in (1, 0, 2**62):
        driver.grant("another/one", number)
        planner.tell(number + 7)
        assert planner.limit(None) == number
        assert driver.backlog("another/one") == number + 7
    assert planner.limit(5) == 5
    planner.tell(None)
    assert driver.backlog("another/one") == 2**62 + 7
    assert driver.backlog("a source") is None
    assert driver.path("not held back") is None


def test_a_source_without_its_credit_file_is_not_limited(tmp_path: Path) -> None:
    planner = CreditsOfSource(str(tmp_path / "gone" / "source-0"))
    assert planner.limit(None) is None
    assert planner.limit(9) == 9
    planner.tell(3)


def test_a_driver_with_closed_credit_files_reads_no_backlog(tmp_path: Path) -> None:
    driver = CreditFiles(tmp_path, ["in"])
    driver.grant("in", 5)
    driver.close()
    driver.grant("in", 6)
    assert driver.backlog("in") is None
    assert CreditsOfSource(driver.path("in") or "").limit(None) == 5


class Counting(NumberSequenceSource):
    """Counts how often its backlog was queried."""

    asked = 0

    def backlog(self, positions: Positions) -> int | None:
        type(self).asked += 1
        return super().backlog(positions)


@pytest.fixture(autouse=True)
def driver_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner runs in a process that Spark starts and installs the program there, which it must not do here."""
    monkeypatch.setattr("penstock.spark.planner.enter_program", lambda shipped: None)


def planner(source: Any, **options: str) -> Planner:
    options |= {
        "name": "in",
        "parallelism": "2",
        "penstock.secret.program": "",
        "penstock.secret.source": base64.b64encode(pickle.dumps(source)).decode(),
    }
    return PlannedSource(options).streamReader(None)


def test_a_planner_honors_credits_and_its_own_limit(tmp_path: Path) -> None:
    driver = CreditFiles(tmp_path, ["in"])
    driver.grant("in", 10)
    planned = planner(Counting(1, 100), credits=driver.path("in") or "", limit="30")
    start = planned.initialOffset()
    first = planned.latestOffset(start, ReadMaxRows(30))
    assert (driver.backlog("in"), Counting.asked) == (90, 1)
    driver.grant("in", 1000)
    second = planned.latestOffset(first, ReadMaxRows(30))
    assert driver.backlog("in") == 60
    last = planned.latestOffset(second, ReadAllAvailable())
    assert (driver.backlog("in"), Counting.asked) == (0, 3)
    # Spark asks repeatedly while nothing arrives, which must cost nothing.
    assert planned.latestOffset(last, ReadAllAvailable()) == last
    assert Counting.asked == 3
    planned.stop()


def test_a_source_without_a_backlog_reports_none(tmp_path: Path) -> None:
    driver = CreditFiles(tmp_path, ["in"])
    planned = planner(DataGeneratorSource(str), credits=driver.path("in") or "")
    planned.latestOffset(planned.initialOffset(), ReadAllAvailable())
    assert driver.backlog("in") is None
