"""Candidates in the election: `Member` in the process of the test, `StandIn` in a process that can be killed.

Each line in the file of a process is the seconds since the boot, then `act EPOCH` for each thing that it does as the
leader, or the name of an instruction. The time of an act is taken before the process asks whether it leads.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from penstock.cluster.coordination import Coordination
from penstock.cluster.leadership import BecomeLeader, Instruction, ResumeLeadership
from penstock.cluster.records import Records
from penstock.cluster.recovery import FoundJob, found_jobs
from penstock.cluster.zookeeper import ZooKeeperCoordination
from penstock.cluster.zookeeper_client import ZooKeeperSettings, clock

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]
SESSION_S = 3.0


def settings_for(quorum: str, **changes: object) -> ZooKeeperSettings:
    known = {
        "quorum": quorum,
        "root": "/penstock",
        "cluster_id": secrets.token_hex(4),
        "timeout_s": SESSION_S,
        "credentials": "penstock:a-password-of-tests",
    }
    return ZooKeeperSettings(**{**known, **changes})  # type: ignore[arg-type]


def until(condition: Callable[[], object], what: str = "", patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.02)


def all_found(coordination: Coordination, records: Records) -> list[FoundJob]:
    """Return the jobs that a new leader finds."""
    return [found for batch in found_jobs(coordination, records) for found in batch]


class Member:
    """A Dispatcher's part in the election, within the process of the test."""

    def __init__(self, settings: ZooKeeperSettings, address: str = "here:8081") -> None:
        self.instructions: list[Instruction] = []
        self.coordination = ZooKeeperCoordination(settings)
        self.coordination.start(address, self.instructions.append)

    def leads(self) -> Member:
        """Wait until it leads, and has received the instruction to, which a thread delivers."""
        until(lambda: self.coordination.leading and self.was_instructed_to_lead(), "leadership")
        return self

    def was_instructed_to_lead(self) -> bool:
        return bool(self.instructions) and isinstance(self.instructions[-1], (BecomeLeader, ResumeLeadership))


class StandIn:
    """The process, seen from a test."""

    def __init__(self, settings: ZooKeeperSettings, file: Path) -> None:
        self.file = file
        self.address = f"{file.name}:8081"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(file)], stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert self._process.stdin is not None
        # Standard input, since it contains the password.
        self._process.stdin.write(json.dumps({**asdict(settings), "address": self.address}).encode() + b"\n")
        self._process.stdin.flush()

    def lines(self) -> list[tuple[float, str]]:
        """Return what the process has written, without a last line that is not complete."""
        if not self.file.exists():
            return []
        text = self.file.read_text().rpartition("\n")[0]
        return [(float(line.split(maxsplit=1)[0]), line.split(maxsplit=1)[1]) for line in text.splitlines()]

    def acts(self) -> list[tuple[float, int]]:
        """Return the time and the epoch of each act."""
        return [(at, int(text.split()[1])) for at, text in self.lines() if text.startswith("act ")]

    def instructions(self) -> list[str]:
        return [text for _, text in self.lines() if not text.startswith("act ")]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop the process, and return when it has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()


def main(file: str) -> None:
    settings = json.loads(sys.stdin.readline())
    address = settings.pop("address")
    coordination = ZooKeeperCoordination(ZooKeeperSettings(**settings))
    epoch = 0
    with open(file, "a", buffering=1) as out:

        def follow(instruction: Instruction) -> None:
            nonlocal epoch
            if isinstance(instruction, BecomeLeader):
                epoch = instruction.epoch
            out.write(f"{clock()} {type(instruction).__name__}\n")

        coordination.start(address, follow)
        while os.getppid() != 1:
            at, acted = clock(), epoch
            if acted and coordination.leading:
                out.write(f"{at} act {acted}\n")
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
