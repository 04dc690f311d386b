"""A damaged checkpoint: what the next driver can do, and how the rig reports anything else."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from victim import run_victim

from chaos.faults import Faults, Violation
from chaos.observer import Observer
from chaos.progress import Progress


class NextDriver:
    """Exits immediately with `code` after logging `says`; or reports epochs without end."""

    def __init__(self, log: Path, says: str, code: int | None, does: Callable[[], None]) -> None:
        self.log = log
        self._code = code
        self.events = self
        log.write_text(says)
        does()

    def wait(self, seconds: float) -> int | None:
        return self._code

    def code(self) -> int | None:
        return self._code

    def look(self) -> None: ...

    def kill(self) -> None:
        self._code = -9

    def end_all(self, patience: float) -> list[Any]:
        return []

    def empty(self) -> bool:
        return self._code is not None

    def get(self) -> list[str]:
        # One at a time: the rig counts epochs, not words.
        self.empty = iter([True, False] * 50).__next__  # type: ignore[method-assign]
        return ["epoch", "1"]


class PretendedRig:
    def __init__(self, work: Path, says: str, code: int | None, does: Callable[[], None] = lambda: None) -> None:
        self.work = work
        self.observer = Observer(work)
        self.progress = Progress("")
        self._next = says, code, does

    def start(self, master: str) -> NextDriver:
        return NextDriver(self.work / "log", *self._next)

    def buried(self, driver: Any) -> None: ...

    def forget_replicas(self) -> None: ...


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a manifest of a finished run, the second-newest, which the rig will truncate."""
    lineage = run_victim(tmp_path, 200)
    path = sorted((lineage / "manifests").iterdir())[-2]
    monkeypatch.setattr("chaos.faults.choose_needed", lambda lineage, dice: (path, "cut"))
    return path


def damage(rig: PretendedRig) -> str:
    dead = NextDriver(rig.work / "dead", "", -9, lambda: None)
    return Faults(rig)._damage_checkpoint(dead, "local[2]", random.Random(1))  # type: ignore[arg-type]


def test_a_driver_that_names_the_file_and_exits_passes_and_the_file_is_restored(damaged: Path, tmp_path: Path) -> None:
    content = damaged.read_bytes()
    reported = damage(PretendedRig(tmp_path, f"manifests/{damaged.name} is damaged", 1))
    assert "refused and named it" in reported
    assert damaged.read_bytes() == content


def test_a_driver_that_exits_without_naming_the_file_is_a_violation(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(Violation, match="does not name it"):
        damage(PretendedRig(tmp_path, "KeyError: 3", 1))


def test_a_driver_that_exits_with_success_is_a_violation(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(Violation, match="exited with 0"):
        damage(PretendedRig(tmp_path, f"read {damaged.name}", 0))


def test_a_driver_that_keeps_running_is_a_violation(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(Violation, match="the job ran for 25 epochs"):
        damage(PretendedRig(tmp_path, "", None))


def test_a_driver_that_changes_a_file_is_a_violation(damaged: Path, tmp_path: Path) -> None:
    other = sorted(damaged.parent.iterdir())[0]
    rig = PretendedRig(tmp_path, damaged.name, 1, lambda: other.write_bytes(b""))
    with pytest.raises(Violation, match=f"changed {other}"):
        damage(rig)


def test_a_driver_that_removes_needed_or_visible_files_is_a_violation(damaged: Path, tmp_path: Path) -> None:
    delta = sorted(damaged.parent.parent.glob("deltas/*/*"))[0]
    with pytest.raises(Violation, match=f"removed .*{delta.name}, which the newest checkpoint needs"):
        damage(PretendedRig(tmp_path, damaged.name, 1, delta.unlink))
    part = sorted((tmp_path / "out").glob("part-*"))[0]
    with pytest.raises(Violation, match=f"removed {part}"):
        damage(PretendedRig(tmp_path, damaged.name, 1, part.unlink))
