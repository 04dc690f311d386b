"""The rig's own logic with simulated drivers: what it does, what it remembers, and which violations it reports."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from victim import run_victim

from chaos import rig as rig_module
from chaos.blindness import blind
from chaos.faults import Faults, Missed
from chaos.plan import LOCAL, Fault, Life
from chaos.progress import Outcome, Progress
from chaos.rig import Rig

PLAN = [
    Life(
        LOCAL,
        (Fault(0, "worker", "epoch", 0, 1), Fault(1, "disk-full", "epoch", 0, 2), Fault(2, "driver", "epoch", 0, 3)),
    ),
    Life(LOCAL, (Fault(3, "driver-jvm", "start", 0, 4),)),
    Life(LOCAL, (Fault(4, "pause", "epoch", 0, 5), Fault(5, "replica-cut", "epoch", 0, 6))),
]


class Words:
    """Sends every message that a rig can wait for: a session, endless epochs, and `finished` once the input ends."""

    def __init__(self, work: Path) -> None:
        self._said = self._words(work)

    def _words(self, work: Path) -> Iterator[list[str]]:
        yield ["session"]
        number = 0
        while not (work / "total").exists():
            number += 1
            yield ["epoch", str(number)]
        shutil.rmtree(work / "out", ignore_errors=True)
        run_victim(work, int((work / "total").read_text()))
        yield ["finished"]

    def get(self, timeout: float | None = None) -> list[str]:
        return next(self._said)

    def empty(self) -> bool:
        return True


class PretendedDriver:
    def __init__(self, work: Path, log: Path, arguments: dict[str, object]) -> None:
        self.python = (1, -1)
        self.log = log
        self.events = Words(work)
        self.executor_directories: set[Path] = set()

    def look(self) -> None: ...

    def kill(self) -> None: ...

    def code(self) -> int:
        return 0

    def wait(self, seconds: float) -> int:
        return 0

    def end_all(self, patience: float) -> list[Any]:
        return []


@pytest.fixture
def make_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    """Return a factory of rigs whose faults are only recorded in `done`."""

    def make(done: list[str], say: Callable[[str], None] = lambda text: None, minutes: float | None = None) -> Rig:
        monkeypatch.setattr(rig_module, "Driver", PretendedDriver)

        def inject(self: Faults, kind: str, *rest: Any) -> str:
            done.append(kind)
            return "pretended"

        def end_life(self: Faults, kind: str, driver: Any, *rest: Any) -> str:
            done.append(kind)
            self._rig.buried(driver)
            return "pretended"

        monkeypatch.setattr(Faults, "inject", inject)
        monkeypatch.setattr(Faults, "end_life", end_life)
        return Rig(tmp_path / "work", "filesystem", PLAN, say, minutes)

    return make


EVERYTHING = ["worker", "disk-full", "driver", "driver-jvm", "pause", "replica-cut"]


def test_a_plan_runs_in_order_and_a_good_job_has_no_violations(make_rig: Callable[..., Rig]) -> None:
    done: list[str] = []
    rig = make_rig(done)
    assert rig.run()
    assert done == EVERYTHING
    assert rig.progress.violations == []
    assert rig.progress.drivers == 3
    assert [outcome.kind for outcome in rig.progress.outcomes] == EVERYTHING


def test_an_interrupted_run_continues_where_it_stopped(make_rig: Callable[..., Rig]) -> None:
    class Interrupt:
        def __init__(self, after: int) -> None:
            self.left = after

        def __call__(self, text: str) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    done: list[str] = []
    for after in (1, 2, 2):
        with pytest.raises(KeyboardInterrupt):
            make_rig(done, Interrupt(after)).run()
    last = make_rig(done)
    assert last.run()
    assert done == EVERYTHING
    assert len(last.progress.outcomes) == len(EVERYTHING)
    assert last.progress.violations == []


def test_a_fault_without_a_target_is_recorded_as_missed(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig([])

    def inject(self: Faults, kind: str, *rest: Any) -> str:
        raise Missed("no worker was running")

    monkeypatch.setattr(Faults, "inject", inject)
    assert rig.run()
    assert [outcome.kind for outcome in rig.progress.outcomes if outcome.missed] == [
        kind for kind in EVERYTHING if not kind.startswith("driver")
    ]
    assert rig.progress.violations == []


def test_a_rig_whose_faults_mostly_miss_is_reported_as_blind() -> None:
    outcomes = [Outcome(number, "worker", "", 1.0, missed=number < 2) for number in range(3)]
    outcomes += [Outcome(number, "pause", "", 1.0, missed=number < 2) for number in range(4)]
    assert blind(outcomes) == ["worker: 2 of 3 faults found no target; the rig is blind"]


def test_an_expired_time_limit_ends_the_run_before_the_next_fault(make_rig: Callable[..., Rig]) -> None:
    done: list[str] = []
    assert not make_rig(done, minutes=0).run()
    assert done == []


def test_a_finished_run_or_one_with_another_plan_starts_over(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make_rig([])
    rig.run()
    work = tmp_path / "work"
    assert Progress.load(work, rig.progress.plan).outcomes == []
    rig.progress.finished = False
    rig.progress.save(work)
    assert Progress.load(work, rig.progress.plan).outcomes != []
    assert Progress.load(work, "another plan").outcomes == []


def test_a_lost_record_is_a_violation(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    def spoil(text: str) -> None:
        if text.startswith("the job has finished"):
            path = next((tmp_path / "work" / "out").glob("part-*"))
            path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))

    rig = make_rig([], spoil)
    assert rig.run()
    assert any(violation.startswith("lost: ") for violation in rig.progress.violations)


def test_a_driver_that_never_completes_an_epoch_is_a_violation(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(self: Rig, what: str) -> list[str]:
        raise rig_module.DriverEnded

    rig = make_rig([])
    monkeypatch.setattr(Rig, "_await", ends)
    monkeypatch.setattr(rig_module, "reason", lambda log: "something is wrong")
    assert rig.run()
    (violation,) = rig.progress.violations
    assert "did not complete an epoch" in violation
    assert "something is wrong" in violation
