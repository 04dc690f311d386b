"""Crash points at which a test kills or stops a process: by name, in one epoch, once."""

import os
import signal
from pathlib import Path

import pytest

from penstock.runtime.probe import VARIABLE, crash_probe


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[signal.Signals]:
    sent: list[signal.Signals] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    monkeypatch.setattr(signal, "raise_signal", sent.append)
    monkeypatch.setattr(signal, "pause", lambda: None)
    return sent


@pytest.mark.parametrize(("role", "expected"), [("driver", signal.SIGKILL), ("stopped-driver", signal.SIGSTOP)])
def test_a_driver_is_killed_or_stopped_once_at_its_crash_point(
    role: str, expected: signal.Signals, signals: list[signal.Signals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{role}:collected:3:{tmp_path / 'marker'}")
    epoch = 2
    probe = crash_probe("driver", lambda: epoch)
    probe("collected")
    assert signals == []
    epoch = 3
    probe("triggered")
    probe("collected")
    probe("collected")
    assert signals == [expected]
    assert (tmp_path / "marker").exists()


def test_a_crash_point_of_another_role_is_ignored(
    signals: list[signal.Signals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"stopped-driver:collected:3:{tmp_path / 'marker'}")
    crash_probe("task", lambda: 3)("collected")
    assert signals == []
