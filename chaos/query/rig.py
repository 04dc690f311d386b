"""The run: start the job and its readers, inject the faults, and check that reads are answered again after each."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos import storage_faults
from chaos.blindness import blind
from chaos.faults import Violation
from chaos.plan import HARNESS
from chaos.processes import Driver, Process
from chaos.progress import Outcome, Progress
from chaos.query.checkpoints import Checkpoints
from chaos.query.plan import KILLS, RESCALE, STOP
from chaos.query.program import NAME, TALLIES, TOTALS
from chaos.query.reading import Reader, Subscriber
from chaos.query.servers import OwnServer, launched, listens
from chaos.requests import Request, ask, take_back
from chaos.servers.ports import free_port
from penstock.query import QueryableStateClient
from penstock.query.flight_server import query_token

PER_EPOCH, PACE_MS = 70, 30
_PATIENCE_S = 180.0
"""A job without an epoch, or clients without an answer, for this long hang."""
_FRUITLESS = 4
_EPOCHS = 3
"""Checkpoints that must be complete after a fault before the next one."""
_LINGER_S = 10
_WIDTHS = (1, 2, 3)
_UNANSWERED_S = 60.0
"""Clients must be answered again within this time after a fault."""


class Rig:
    """Runs a plan. Call `run` once; `say` receives a line per fault."""

    def __init__(
        self,
        work: Path,
        master: str,
        plan: list[str],
        reads: int,
        seed: int,
        say: Callable[[str], None],
        clients: int = 3,
    ) -> None:
        self.work = work.resolve()
        self._master = master
        self._plan = plan
        self._wanted = reads
        self._say = say
        self._dice = random.Random(seed)
        self.progress = Progress("")
        self.known = Checkpoints(self.work / "checkpoints")
        (self.work / "logs").mkdir(parents=True)
        storage_faults.create(self.work / "storage")
        self._port = free_port()
        self._settings = {
            "queryable-state.proxy.ports": str(self._port),
            "queryable-state.server.ports": "0",
            "queryable-state.auth.token-file": str(self.work / "token"),
            "queryable-state.linger": f"{_LINGER_S} s",
        }
        query_token(self._settings)
        self._own = OwnServer(self.work / "checkpoints" / NAME, self._settings, self.work / "logs" / "server.log")
        self._driver: Driver | None = None
        self._dead: list[Driver] = []
        self._servers: set[Process] = set()
        self._stopped = threading.Event()
        self._clients = [self._connected() for _ in range(clients + 2)]
        self.readers = [Reader(client, self.known, seed + i) for i, client in enumerate(self._clients[:clients])]
        self.subscribers = [
            Subscriber(client, self.known, state)
            for client, state in zip(self._clients[clients:], (TOTALS, TALLIES), strict=True)
        ]
        runs: list[Callable[[threading.Event], None]] = [
            *(each.run for each in self.readers),
            *(each.run for each in self.subscribers),
        ]
        self._threads = [threading.Thread(target=run, args=(self._stopped,), daemon=True) for run in runs]

    def _connected(self) -> QueryableStateClient:
        return QueryableStateClient("127.0.0.1", self._port, token_file=str(self.work / "token"), timeout=5)

    @property
    def reads(self) -> int:
        return sum(reader.reads for reader in self.readers)

    def run(self) -> None:
        """Carry out the plan. Violations are in `progress`."""
        began = time.monotonic()
        self.known.start()
        try:
            self._start()
            self._epochs(_EPOCHS)
            self._own.look()
            for thread in self._threads:
                thread.start()
            for index, kind in enumerate(self._plan):
                self._until_read(self._wanted * (index + 1) // (len(self._plan) + 2))
                self._do(index, kind)
            self._until_read(self._wanted)
            self._check()
            self.progress.finished = True
        except Violation as violation:
            self.progress.violations.append(str(violation))
        finally:
            self._stop_all()
            self._collect()
            self.progress.epochs = self.known.count
            self.progress.seconds = time.monotonic() - began

    def summary(self) -> str:
        """Return what the clients have done."""
        counts = sum((reader.counts for reader in self.readers), Counter())
        of_each = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        subscribed = " and ".join(f"{each.checkpoints} ({each.resets} resets)" for each in self.subscribers)
        unanswered, lost = (sum(getattr(each, name) for each in self.readers) for name in ("unanswered", "lost_pins"))
        longest = max(each.longest for each in self.readers)
        return (
            f"{self.reads:,} reads ({of_each}), {unanswered:,} without an answer, at most {longest:.1f} s in a row; "
            f"{lost} pins lost; changes of {subscribed} checkpoints"
        )

    # -- faults ----------------------------------------------------------------------------------------------------

    def _do(self, index: int, kind: str) -> None:
        time.sleep(self._dice.random() * 0.5)
        did, missed = self._inject(kind)
        began = time.monotonic()
        ended = self._epochs(_EPOCHS)
        recovered = time.monotonic() - began
        self._until_answered(began)
        self.progress.outcomes.append(Outcome(index, kind, did, recovered, ended, missed))
        again = f"; the driver exited and was restarted: {ended}" if ended else ""
        done = f"{index + 1:3}/{len(self._plan)} {kind:9} at {self.reads:,} reads: {did}"
        self._say(f"{done}; {_EPOCHS} checkpoints later after {recovered:.1f} s{again}")

    def _inject(self, kind: str) -> tuple[str, bool]:
        """Return a description, and whether a target was missing."""
        driver = self._running()
        if kind == "driver":
            driver.kill()
            driver.wait(30)
            self._bury()
            return f"killed {driver.python.pid}", False
        if kind == RESCALE:
            width = self._dice.choice(_WIDTHS)
            ask(self.work, Request(RESCALE, width))
            return f"{' '.join(self._answer(driver, 'rescaled'))} at a parallelism of {width}", False
        if kind == STOP:
            return self._stop(driver), False
        victim = self._victim(driver, kind)
        if victim is None or not victim.send(9):
            return "found no target", True
        return f"killed {victim.pid}", False

    def _victim(self, driver: Driver, kind: str) -> Process | None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            found: list[Process]
            if kind == "executor":
                found = driver.executors() if "cluster" in self._master else driver.workers()
            else:
                servers = self.servers()
                found = [each for each in servers if listens(each, self._port) == (kind == "proxy")]
            if found:
                return self._dice.choice(found)
            time.sleep(0.05)
        return None

    def servers(self) -> list[Process]:
        """Return the living state servers."""
        for driver in (*self._dead, *([self._driver] if self._driver else [])):
            driver.look()
            self._servers.update(launched(driver.seen))
        own = self._own.process()
        return sorted({*(each for each in self._servers if each.alive()), *([own] if own else [])})

    def _stop(self, driver: Driver) -> str:
        ask(self.work, Request(STOP))
        answer = self._answer(driver, "stopped")
        if driver.wait(_PATIENCE_S) != 0:
            raise Violation(f"the job was stopped with a savepoint, but exited with {driver.code()}; see {driver.log}")
        self._bury()
        take_back(self.work)
        self.progress.savepoint = answer[1]
        self.progress.parallelism = self._dice.choice(_WIDTHS)
        return f"stopped; continues from its savepoint at a parallelism of {self.progress.parallelism}"

    def _answer(self, driver: Driver, word: str) -> list[str]:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            while not driver.events.empty():
                words = driver.events.get()
                if words[0] == word:
                    return words
                if words[0] == "refused":
                    raise Violation(f"a request was refused: {' '.join(words)}; see {driver.log}")
            if driver.wait(0.05) is not None and driver.events.empty():
                raise Violation(f"the driver exited with {driver.code()} instead of {word}; see {driver.log}")
        raise Violation(f"the job did not answer for {_PATIENCE_S:.0f} s; see {driver.log}")

    # -- drivers ---------------------------------------------------------------------------------------------------

    def _start(self) -> Driver:
        number = self.progress.drivers
        settings = {
            **self._settings,
            "queryable-state.enable": "true",
            "spark.master": self._master,
            "spark.driver.memory": "512m",
            "state.backend": "filesystem",
            "state.backend.local-dir": "replicas" if "cluster" in self._master else f"{self.work}/replicas",
            "state.checkpoints.dir": f"{self.work}/checkpoints",
            "execution.checkpointing.interval": "50 ms",
            "execution.checkpointing.num-retained": "20",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": str(PER_EPOCH),
        }
        if self._master == HARNESS:
            settings = {key: value for key, value in settings.items() if not key.startswith("spark.")}
        if self.progress.savepoint:
            settings["execution.state-recovery.path"] = self.progress.savepoint
        arguments: dict[str, object] = {
            "directory": str(self.work),
            "master": self._master,
            "settings": settings,
            "per_epoch": PER_EPOCH,
            "pace_ms": PACE_MS,
            "parallelism": self.progress.parallelism,
        }
        log = self.work / "logs" / f"driver-{number:03}.log"
        self._driver = Driver(self.work, log, arguments, "chaos.query.job")
        self.progress.drivers += 1
        return self._driver

    def _running(self) -> Driver:
        return self._driver or self._start()

    def _bury(self) -> None:
        assert self._driver is not None
        self._dead.append(self._driver)
        self._driver = None

    def _tend(self) -> str:
        """Start what has ended, as the operator of a job does. Return why the driver ended, if it did by itself."""
        ended = ""
        driver = self._running()
        driver.look()
        self._own.look()
        if driver.wait(0) is not None:
            ended = f"exit {driver.code()} ({driver.log.name})"
            self._bury()
            self._start()
        return ended

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _epochs(self, count: int) -> str:
        """Wait until the job has completed some checkpoints. Return why drivers ended meanwhile."""
        ended: list[str] = []
        first = self.known.count
        until = time.monotonic() + _PATIENCE_S
        while self.known.count < first + count:
            if why := self._tend() if self.progress.drivers and self._threads[0].ident else self._alive():
                ended.append(why)
            if len(ended) >= _FRUITLESS:
                raise Violation(f"{len(ended)} drivers in a row did not complete {count} checkpoints: {ended[-1]}")
            if time.monotonic() > until:
                raise Violation(f"the job completed no {count} checkpoints for {_PATIENCE_S:.0f} s")
            time.sleep(0.05)
        return "; ".join(ended)

    def _alive(self) -> str:
        driver = self._running()
        driver.look()
        if driver.wait(0) is not None:
            raise Violation(f"the job did not start: exit {driver.code()}; see {driver.log}")
        return ""

    def _until_read(self, count: int) -> None:
        until = time.monotonic() + _PATIENCE_S
        before = self.reads
        while self.reads < count:
            self._tend()
            if found := self._violations():
                raise Violation(found[0])
            if self.reads > before:
                before, until = self.reads, time.monotonic() + _PATIENCE_S
            if time.monotonic() > until:
                raise Violation(f"no read was answered for {_PATIENCE_S:.0f} s")
            time.sleep(0.05)

    def _until_answered(self, began: float) -> None:
        """Wait until each client was answered after a fault. Raises Violation if that takes too long."""
        for reader in self.readers:
            while reader.answered_at < began:
                self._tend()
                if time.monotonic() - began > _UNANSWERED_S:
                    raise Violation(f"a client got no answer for {_UNANSWERED_S:.0f} s after a fault")
                time.sleep(0.01)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _violations(self) -> list[str]:
        found = [each.violations for each in self.readers] + [each.violations for each in self.subscribers]
        return [text for each in found for text in each]

    def _check(self) -> None:
        violations = self.progress.violations
        violations += blind(self.progress.outcomes)
        # A killed server takes at most the pin of each client with it, and so does a job that continues elsewhere.
        kills = sum(each.kind in (*KILLS, STOP) for each in self.progress.outcomes)
        lost = sum(reader.lost_pins for reader in self.readers)
        if lost > kills * len(self.readers):
            violations.append(f"{lost} pinned reads lost their checkpoint, but only {kills} processes were killed")
        counts = sum((reader.counts for reader in self.readers), Counter())
        for kind in ("get", "entries", "pair", "many", "scan"):
            if not counts[kind]:
                violations.append(f"no {kind} was answered; the rig is blind")

    def _collect(self) -> None:
        found = self._violations()
        known = set(self.progress.violations)
        self.progress.violations += [text for text in dict.fromkeys(found) if text not in known][:20]

    def _stop_all(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            if thread.ident:
                thread.join(20)
        for client in self._clients:
            client.close()
        self.servers()
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait(30)
            self._bury()
        self._own.stop()
        for each in self._servers:
            each.send(9)
        for driver in self._dead:
            driver.end_all(5)
            for directory in driver.executor_directories:
                application = directory.parent
                shutil.rmtree(application if application.name.startswith("app-") else directory, ignore_errors=True)
        self.known.stop()
