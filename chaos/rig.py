"""The run: start drivers, inject the planned faults, check that the job recovers, and compare it with the oracle."""

from __future__ import annotations

import queue
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from chaos import storage_faults
from chaos.blindness import blind
from chaos.damage import drop_replicas, lineages
from chaos.ends.files import FileEnds
from chaos.ends.served import Missed, ServedEnds
from chaos.faults import Faults, Violation
from chaos.job import SAYS
from chaos.observer import Observer
from chaos.plan import ALL_KINDS, Fault, Life, digest
from chaos.processes import Driver, Process
from chaos.program import SOURCE
from chaos.progress import Outcome, Progress
from chaos.requests import DRAIN, Request, ask
from chaos.verdict import check_finished, check_savepoints
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import last_manifest

PER_EPOCH = 40
PACE_MS = 30
_PATIENCE_S = 180.0
"""A job without an epoch for this long hangs. Starting a driver on a busy machine takes 30 s."""
_FRUITLESS = 4
"""Maximum number of drivers in a row that complete no epoch without being hit by a fault."""
_TAIL_EPOCHS = 12
"""Epochs after the last fault, to show that the job keeps running."""


class DriverEnded(Exception):
    """The driver exited without the rig's doing."""


class OutOfTime(Exception):
    """The time limit is reached; the next process continues the run."""


class Rig:
    """Runs a plan. Call `run` once; `say` receives a line per fault."""

    def __init__(
        self,
        work: Path,
        backend: str,
        plan: list[Life],
        say: Callable[[str], None],
        minutes: float | None = None,
        make_ends: Callable[[Path], FileEnds | ServedEnds] = FileEnds,
        standbys: int = 0,
    ) -> None:
        self.work = work
        self._backend = backend
        self._standbys = standbys
        self._plan = plan
        self._say = say
        self._started = time.monotonic()
        self._deadline = None if minutes is None else self._started + minutes * 60
        self._driver: Driver | None = None
        self._dead: list[Driver] = []
        self._executor_directories: set[Path] = set()
        self._epoch = 0
        self.progress = Progress.load(work, digest(plan))
        if not self.progress.drivers and work.exists():
            shutil.rmtree(work)
        (work / "logs").mkdir(parents=True, exist_ok=True)
        storage_faults.create(work / "storage")
        self.ends = make_ends(work)
        self._read = 0
        self.observer = Observer(work)
        self.observer.recall(self.progress.seen)
        self._faults = Faults(self)

    @property
    def count(self) -> int:
        return sum(len(life.faults) for life in self._plan)

    def run(self) -> bool:
        """Return whether the run is finished; False if time is up. Violations are in `progress`."""
        before = self.progress.seconds
        if self.progress.driver:
            # A killed rig could not end its driver.
            Process(*self.progress.driver).send(9)
        self.observer.start()
        try:
            if isinstance(self.ends, ServedEnds):
                self.ends.open(self.records_read, self.progress.total)
            for life in self._plan:
                self._live(life)
            self._finish()
            self.progress.violations += blind(self.progress.outcomes)
            self.progress.finished = True
        except Violation as violation:
            self.progress.violations.append(str(violation))
        except OutOfTime:
            return False
        finally:
            self._stop_all()
            if isinstance(self.ends, ServedEnds):
                self.ends.close()
            self.observer.stop()
            self.progress.violations += self.observer.violations
            self.progress.seen = self.observer.remember()
            self.progress.seconds = before + time.monotonic() - self._started
            self.progress.save(self.work)
        return True

    # -- lives -----------------------------------------------------------------------------------------------------

    def _live(self, life: Life) -> None:
        faults = [fault for fault in life.faults if fault.index not in self.progress.done]
        if life.faults and not faults:
            return
        for fault in faults:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise OutOfTime
            if self.observer.violations:
                raise Violation("the observer found a violation")
            self._look_at_ends()
            self._do(life, fault)
            self.progress.seen = self.observer.remember()
            self.progress.save(self.work)
        if not life.faults[-1:] or not ALL_KINDS[life.faults[-1].kind].ends_life:
            # The last life lasts until the end of the job.
            self._master = life.master

    def _do(self, life: Life, fault: Fault) -> None:
        ends = ALL_KINDS[fault.kind].ends_life
        if fault.after == "start":
            driver = self._running(life.master)
            self._await("session")
        else:
            self._next_epochs(life.master, 1)
            driver = self._running(life.master)
        time.sleep(fault.delay_ms / 1000)
        dice = random.Random(fault.dice)
        if ends:
            did = self._faults.end_life(fault.kind, driver, life.master, dice)
            outcome = Outcome(fault.index, fault.kind, did, None)
        else:
            missed = False
            try:
                did = self._faults.inject(fault.kind, driver, life.master, dice)
            except Missed as nothing:
                did, missed = str(nothing), True
            began = time.monotonic()
            ended = self._next_epochs(life.master, 2)
            outcome = Outcome(fault.index, fault.kind, did, time.monotonic() - began, ended, missed)
        self.progress.outcomes.append(outcome)
        place = f"{fault.delay_ms} ms after {'the start' if fault.after == 'start' else f'epoch {self._epoch}'}"
        after = "" if outcome.recovery_s is None else f"; two epochs later after {outcome.recovery_s:.1f} s"
        again = f"; the driver exited and was restarted: {outcome.ended}" if outcome.ended else ""
        done = len(self.progress.outcomes)
        self._say(f"{done:3}/{self.count} {fault.kind:13} {place}: {did}{after}{again}")

    # -- drivers ---------------------------------------------------------------------------------------------------

    def start(self, master: str) -> Driver:
        for old in self._dead[:-1]:
            # Its processes had the lifetime of another driver to notice that it is dead.
            self.progress.left_behind += len(old.end_all(0))
            self._executor_directories |= old.executor_directories
        self._dead = self._dead[-1:]
        number = self.progress.drivers
        arguments: dict[str, object] = {
            "directory": str(self.work),
            "master": master,
            "backend": self._backend,
            "standbys": self._standbys,
            "per_epoch": PER_EPOCH,
            "pace_ms": PACE_MS,
            "savepoint": self.progress.savepoint,
            "parallelism": self.progress.parallelism,
            "run": len(self.progress.left) + 1,
            "ends": self.ends.where(),
        }
        driver = self._driver = Driver(self.work, self.work / "logs" / f"driver-{number:03}.log", arguments)
        self.progress.drivers += 1
        self.progress.driver = list(driver.python)
        self.progress.save(self.work)
        self._from_scratch = self._backend == "memory" and number > 0
        return driver

    def began_with(self, savepoint: str, parallelism: int) -> None:
        """Start drivers from this savepoint from now on; they continue from the checkpoints that follow it."""
        self.progress.left = [each.name for each in lineages(self.work / "checkpoints")]
        self.progress.savepoint, self.progress.parallelism = savepoint, parallelism
        self.progress.save(self.work)

    def records_read(self) -> int:
        """Return how many records the newest checkpoint has read."""
        found = lineages(self.work / "checkpoints")
        if found:
            # It can be damaged at the moment, or just replaced by a newer one.
            with suppress(PenstockError):
                self._read = last_manifest(LocalStorage(found[-1])).records.get(SOURCE, 0)
        return self._read

    def _look_at_ends(self) -> None:
        if isinstance(self.ends, ServedEnds) and (seen := self.ends.look()):
            raise Violation("; ".join(seen))

    def buried(self, driver: Driver) -> None:
        """Mark the driver as dead; processes that it left behind can live on for a while."""
        self._driver = None
        self._dead.append(driver)

    def _running(self, master: str) -> Driver:
        if self._driver is None:
            return self.start(master)
        return self._driver

    def _await(self, what: str) -> list[str]:
        """Return the driver's next message of this kind. Raises DriverEnded, or Violation after a timeout."""
        driver = self._driver
        assert driver is not None
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                words = driver.events.get(timeout=0.2)
            except queue.Empty:
                driver.look()
                if driver.wait(0) is not None and driver.events.empty():
                    raise DriverEnded from None
                if time.monotonic() > deadline:
                    driver.tell_stacks()
                    raise Violation(
                        f"no '{what}' from the driver for {_PATIENCE_S:.0f} s; the last lines of {driver.log}:\n"
                        f"{tail(driver.log)}"
                    ) from None
                continue
            if words[0] == "epoch":
                self.saw_epoch(driver, int(words[1]))
            if words[0] == what:
                return words

    def saw_epoch(self, driver: Driver, number: int) -> None:
        self._epoch = number
        self.progress.epochs += 1
        self.progress.highest = max(number, self.progress.highest)
        if self._from_scratch:
            self._from_scratch = False
            if "from scratch" not in driver.log.read_text(errors="replace"):
                raise Violation(f"a job on the Memory backend started over without logging it; see {driver.log}")

    def _next_epochs(self, master: str, count: int) -> str:
        """Wait for epochs that end from now on; start drivers as needed. Return the drivers' last messages."""
        ended = []
        seen = fruitless = 0
        driver = self._running(master)
        while not driver.events.empty():
            words = driver.events.get()
            if words[0] == "epoch":
                self.saw_epoch(driver, int(words[1]))
        while seen < count:
            try:
                self._await("epoch")
                seen, fruitless = seen + 1, 0
            except DriverEnded:
                ended.append(self._bury())
                fruitless += 1
                if fruitless >= _FRUITLESS:
                    raise Violation(f"{fruitless} drivers in a row did not complete an epoch: {ended[-1]}") from None
                self.start(master)
        return "; ".join(dict.fromkeys(ended))

    def _bury(self) -> str:
        driver = self._driver
        assert driver is not None
        self.buried(driver)
        return f"exit {driver.code()}, {reason(driver.log)} ({driver.log.name})"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise OutOfTime
        if self.progress.total is None:
            self._next_epochs(self._master, 1)
            if isinstance(self.ends, ServedEnds):
                self.progress.total = self.ends.end_input(_TAIL_EPOCHS * PER_EPOCH)
            else:
                # More than any driver has read, including those whose checkpoints were lost with them.
                self.progress.total = (self.progress.highest + _TAIL_EPOCHS) * PER_EPOCH
            self.progress.save(self.work)
        if isinstance(self.ends, FileEnds):
            self.ends.end_input(self.progress.total)
        for _ in range(_FRUITLESS):
            driver = self._running(self._master)
            try:
                if isinstance(self.ends, ServedEnds):
                    self._await_all_read(driver, self.progress.total)
                    ask(self.work, Request(DRAIN))
                self._await("finished")
            except DriverEnded:
                self._say(f"the driver exited before the job finished: {self._bury()}")
                continue
            if driver.wait(60) != 0:
                raise Violation(f"the job finished, but its driver exited with {driver.code()}; see {driver.log}")
            self.buried(driver)
            self._check()
            return
        raise Violation("the job does not finish")

    def _await_all_read(self, driver: Driver, total: int) -> None:
        """Wait until a checkpoint includes all records. Raises like `_await`."""
        deadline = time.monotonic() + _PATIENCE_S
        before = 0
        while (read := self.records_read()) < total:
            self._look_at_ends()
            if read > before:
                before, deadline = read, time.monotonic() + _PATIENCE_S
            if driver.wait(0.2) is not None:
                raise DriverEnded
            driver.look()
            if time.monotonic() > deadline:
                driver.tell_stacks()
                raise Violation(
                    f"the job has read {read} of {total} records, and no more for {_PATIENCE_S:.0f} s; the last lines "
                    f"of {driver.log}:\n{tail(driver.log)}"
                )

    def _check(self) -> None:
        self._say("the job has finished; comparing with the oracle")
        for driver in self._dead:
            self.progress.left_behind += len(driver.end_all(30))
        self.observer.look()
        progress = self.progress
        assert progress.total is not None
        progress.violations += check_savepoints(self.work, self.ends)
        progress.violations += check_finished(self.work, self.ends, self._backend, progress.total, len(progress.left))

    def _stop_all(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait(30)
            self._dead.append(self._driver)
            self._driver = None
        for driver in self._dead:
            driver.end_all(5)
            self._executor_directories |= driver.executor_directories
        self._dead.clear()
        # Spark creates the directories of executors next to its own code and never removes them.
        for directory in self._executor_directories:
            application = directory.parent
            shutil.rmtree(application if application.name.startswith("app-") else directory, ignore_errors=True)

    def replica_roots(self, driver: Driver | None, master: str) -> list[Path]:
        if "cluster" not in master or driver is None:
            return [self.work / "replicas"]
        driver.executors()
        return [directory / "replicas" for directory in sorted(driver.executor_directories)]

    def forget_replicas(self) -> None:
        drop_replicas([self.work / "replicas"])


def reason(log: Path) -> str:
    """Return the last error in a driver's log, without source lines and advice."""
    skipped = (SAYS, " ", "\t", "Fix:", "Operator ")
    lines = [text for text in tail(log).splitlines() if text.strip() and not text.startswith(skipped)]
    return lines[-1][:200] if lines else "no message"


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
