"""Inject each kind of fault into a running job, or into the files of a stopped one."""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chaos import storage_faults
from chaos.damage import HOW, choose_needed, cut, flip, flip_pages, lineages, needed_files, remove, replica_files
from chaos.ends.served import Missed, ServedEnds
from chaos.plan import SERVER_KINDS
from chaos.processes import Driver, Process
from chaos.requests import RESCALE, SAVE, STOP, WIDTHS, Request, ask, take_back
from penstock.errors import PenstockError
from penstock.savepoint.format import list_savepoints, savepoint_storage
from penstock.state.local_storage import LocalStorage

if TYPE_CHECKING:
    from chaos.rig import Rig

_ENDS_S = 120.0
"""Time limit for a driver to exit after its other half was killed."""
_REFUSES_S = 150.0
_REFUSES_EPOCHS = 25
"""Within this many epochs every block of state is read, and with it every needed file."""
_TRIES_S = 30.0
"""A restart strategy can retry for a long time: it is enough that the error names the file."""
_FIND_S = 20.0
_KILLED_WHILE_STOPPING = 0.4


class Violation(Exception):
    """The job did something that must never happen, regardless of faults."""


class Faults:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._control = rig.work / "storage"

    # -- faults that a driver can survive --------------------------------------------------------------------------

    def inject(self, kind: str, driver: Driver, master: str, dice: random.Random) -> str:
        """Inject a fault, and undo it if it is temporary. Returns a description, or raises Missed."""
        if kind in ("executor", "worker", "pause"):
            victim = self._victim(driver, kind, dice)
            if victim is None:
                raise Missed(f"no {'executor' if kind == 'executor' else 'worker'} was running")
            if kind != "pause":
                victim.send(signal.SIGKILL)
                return f"killed {victim.pid}"
            milliseconds = dice.randrange(100, 1500)
            victim.send(signal.SIGSTOP)
            time.sleep(milliseconds / 1000)
            victim.send(signal.SIGCONT)
            return f"paused {victim.pid} for {milliseconds} ms"
        if kind in SERVER_KINDS:
            assert isinstance(self._rig.ends, ServedEnds)
            return self._rig.ends.inject(kind, dice)
        if kind == "rescale":
            width = dice.choice(WIDTHS)
            ask(self._rig.work, Request(RESCALE, width))
            return f"requested a parallelism of {width}"
        if kind == "savepoint":
            ask(self._rig.work, Request(SAVE))
            return "requested a savepoint"
        if kind.startswith("replica-"):
            return self._damage_replica(kind, driver, master, dice)
        if kind == "write-limit":
            return self._limit_writes(driver, dice)
        return self._fail_storage(kind, dice)

    def _victim(self, driver: Driver, kind: str, dice: random.Random) -> Process | None:
        deadline = time.monotonic() + _FIND_S
        while time.monotonic() < deadline and driver.code() is None:
            found = driver.executors() if kind == "executor" else driver.workers()
            if found:
                return dice.choice(found)
            time.sleep(0.01)
        return None

    def _damage_replica(self, kind: str, driver: Driver, master: str, dice: random.Random) -> str:
        roots = self._rig.replica_roots(driver, master)
        files = replica_files(roots)
        if not files:
            raise Missed("no replica existed yet")
        path = dice.choice(files)
        try:
            if kind == "replica-cut":
                done = cut(path, dice)
            elif kind == "replica-flip":
                done = dice.choice([flip, flip_pages])(path, dice)
            elif dice.random() < 0.5:
                done = remove(path, dice)
            else:
                for file in replica_files([path.parent]):
                    file.unlink(missing_ok=True)
                done = "removed with its directory's other files"
        except FileNotFoundError:
            raise Missed(f"{path.name} disappeared before it could be damaged") from None
        root = next(root for root in roots if path.is_relative_to(root))
        return f"{path.relative_to(root)} {done}"

    def _limit_writes(self, driver: Driver, dice: random.Random) -> str:
        limit, milliseconds = dice.choice([0, 4096, 64 * 1024, 256 * 1024]), dice.randrange(200, 1200)
        alone = dice.random() < 0.3 or driver.jvm() is None
        victim = driver.python if alone else self._victim(driver, "worker", dice)
        if victim is None:
            raise Missed("no worker was running")
        who = "the driver" if victim == driver.python else f"worker {victim.pid}"
        with suppress(ProcessLookupError):
            before = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
            try:
                time.sleep(milliseconds / 1000)
            finally:
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, before)
        return f"{who} could not write files beyond {limit} bytes for {milliseconds} ms"

    def _fail_storage(self, kind: str, dice: random.Random) -> str:
        milliseconds = dice.randrange(200, 1500)
        what = {"disk-full": storage_faults.FULL, "disk-error": storage_faults.FAILING}.get(kind, storage_faults.SLOW)
        percent = dice.choice([20, 60, 100]) if kind == "disk-error" else 100
        delay = dice.randrange(10, 150)
        storage_faults.set_storage(self._control, what, percent, delay)
        try:
            time.sleep(milliseconds / 1000)
        finally:
            storage_faults.set_storage(self._control, storage_faults.WELL)
        more = {"disk-error": f", {percent} % of operations", "disk-slow": f", {delay} ms each"}.get(kind, "")
        return f"for {milliseconds} ms{more}"

    # -- faults that end a driver ----------------------------------------------------------------------------------

    def end_life(self, kind: str, driver: Driver, master: str, dice: random.Random) -> str:
        if kind == "stop":
            return self._stop(driver, dice)
        if kind == "driver-jvm":
            did = self._kill_jvm(driver)
        elif kind == "driver-python":
            did = self._kill_python(driver)
        else:
            driver.kill()
            driver.wait(30)
            did = f"killed {driver.python.pid} and its JVM"
        self._rig.buried(driver)
        if kind == "checkpoint":
            did = self._damage_checkpoint(driver, master, dice)
        return did

    def _stop(self, driver: Driver, dice: random.Random) -> str:
        """Stop the job. The next driver starts from the savepoint if one was made, else from the last checkpoint."""
        rig = self._rig
        width = dice.choice(WIDTHS)
        before = set(self._savepoints())
        ask(rig.work, Request(STOP, width))
        if dice.random() < _KILLED_WHILE_STOPPING:
            time.sleep(dice.randrange(1500) / 1000)
            driver.kill()
            did = "killed while stopping"
        else:
            did = "exited"
        answer = self._answer(driver)
        if driver.wait(0) is None:
            # The savepoint failed and the job continues; end its driver anyway.
            driver.kill()
        code = driver.wait(30)
        take_back(rig.work)
        rig.buried(driver)
        # Leftover processes must not write to an abandoned lineage.
        driver.end_all(20)
        if answer[:1] == ["stopped"] and code not in (0, -signal.SIGKILL):
            raise Violation(
                f"the job was stopped with a savepoint, but its driver exited with {code}; see {driver.log}"
            )
        made = [path for path in self._savepoints() if path not in before]
        if not made:
            return f"{did}, without a savepoint: {' '.join(answer) or 'no answer'}"
        rig.began_with(made[-1], width)
        return f"{did}; continues from {Path(made[-1]).name} at a parallelism of {width}"

    def _savepoints(self) -> list[str]:
        """Return the complete savepoints, oldest first."""
        found = list_savepoints(savepoint_storage(str(self._rig.work / "savepoints")))
        return [each.where for each in found if each.metadata is not None]

    def _answer(self, driver: Driver) -> list[str]:
        deadline = time.monotonic() + _ENDS_S
        while time.monotonic() < deadline:
            ended = driver.wait(0) is not None
            while not driver.events.empty():
                words = driver.events.get()
                if words[0] == "epoch":
                    self._rig.saw_epoch(driver, int(words[1]))
                elif words[0] in ("stopped", "refused"):
                    if words[0] == "stopped":
                        driver.wait(_ENDS_S)
                    return words
            if ended:
                return []
            time.sleep(0.02)
        driver.tell_stacks()
        raise Violation(f"the job did not answer a stop request for {_ENDS_S:.0f} s; see {driver.log}")

    def _kill_jvm(self, driver: Driver) -> str:
        jvm = driver.jvm()
        driver.look()
        if jvm is None:
            return "the JVM had already exited"
        jvm.send(signal.SIGKILL)
        code = driver.wait(_ENDS_S)
        if code is None:
            raise Violation(f"the driver is still running {_ENDS_S:.0f} s after its JVM was killed; see {driver.log}")
        if code == 0:
            raise Violation(f"the driver lost its JVM but reported success; see {driver.log}")
        return f"killed JVM {jvm.pid}; Python exited with {code}"

    def _kill_python(self, driver: Driver) -> str:
        jvm = driver.jvm()
        driver.look()
        driver.python.send(signal.SIGKILL)
        deadline = time.monotonic() + _ENDS_S
        while jvm is not None and jvm.alive():
            if time.monotonic() > deadline:
                raise Violation(f"the JVM {jvm.pid} is still running {_ENDS_S:.0f} s after its driver was killed")
            time.sleep(0.05)
        driver.wait(30)
        return f"killed Python {driver.python.pid}; its JVM exited too"

    def _damage_checkpoint(self, dead: Driver, master: str, dice: random.Random) -> str:
        """Damage a file. The next driver must refuse, name the file and destroy nothing. Then restore the file."""
        rig = self._rig
        # A worker that outlived its driver can still write, which would disturb the comparison below.
        dead.end_all(20)
        found = [each for each in lineages(rig.work / "checkpoints") if each.name not in rig.progress.left]
        if not found:
            return "killed the driver; no checkpoint existed yet"
        rig.observer.look()
        rig.observer.pause()
        try:
            path, how = choose_needed(found[-1], dice)
            rig.forget_replicas()
            content = path.read_bytes()
            did = HOW[how](path, dice)
            before = {file: was for file, was in self._contents().items() if file != path}
            name = f"{path.parent.name}/{path.name}"
            ended = self._refusal(path, can_ignore=how == "flip" and path.parent.name != "manifests", master=master)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._check_untouched(before, f"{name} was {did}; the driver that refused it")
        finally:
            rig.observer.resume()
        return f"killed the driver, {name} {did}; the next one {ended}; restored"

    def _refusal(self, path: Path, can_ignore: bool, master: str) -> str:
        rig = self._rig
        driver = rig.start(master)
        deadline = time.monotonic() + _REFUSES_S
        named_at: float | None = None
        epochs = 0
        while driver.wait(0.2) is None:
            driver.look()
            while not driver.events.empty():
                epochs += driver.events.get()[0] == "epoch"
            if named_at is None and path.name in driver.log.read_text(errors="replace"):
                named_at = time.monotonic()
            now = time.monotonic()
            if epochs >= _REFUSES_EPOCHS or now > deadline or (named_at is not None and now > named_at + _TRIES_S):
                driver.kill()
                driver.wait(30)
                break
        rig.buried(driver)
        driver.end_all(20)
        named = path.name in driver.log.read_text(errors="replace")
        if epochs >= _REFUSES_EPOCHS and not named:
            if can_ignore:
                # A bit that Penstock does not read, as in the index for other programs; the oracle will tell.
                return f"ran for {epochs} epochs"
            raise Violation(f"{path} is damaged, but the job ran for {epochs} epochs; see {driver.log}")
        if not named:
            raise Violation(
                f"{path} is damaged, but the driver (exit {driver.code()}) does not name it; see {driver.log}"
            )
        if driver.code() == 0:
            raise Violation(f"{path} is damaged, but the driver exited with 0; see {driver.log}")
        return "kept retrying and named it" if driver.code() == -signal.SIGKILL else "refused and named it"

    def _check_untouched(self, before: dict[Path, str], who: str) -> None:
        """Check that no file changed. Checkpoint files can be removed once no checkpoint needs them, output cannot."""
        after = self._contents()
        for file, was in before.items():
            if file in after and after[file] != was:
                raise Violation(f"{who} changed {file}")
            if file not in after and file.is_relative_to(self._rig.work / "out"):
                raise Violation(f"{who} removed {file}")
        storage = LocalStorage(lineages(self._rig.work / "checkpoints")[-1])
        try:
            missing = [name for name in needed_files(storage) if not storage.exists(name)]
        except PenstockError as error:
            raise Violation(f"{who} left an unreadable checkpoint: {error}") from error
        if missing:
            raise Violation(f"{who} removed {missing[0]}, which the newest checkpoint needs")

    def _contents(self) -> dict[Path, str]:
        """Return the hashes of all durable files: published checkpoints and visible output."""
        work = self._rig.work
        files = [path for root in ("checkpoints", "out") for path in (work / root).rglob("*") if path.is_file()]
        return {
            path: hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
            for path in files
            if not any(part.startswith(".") for part in path.relative_to(work).parts)
        }
