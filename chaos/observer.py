"""Watch a running job's files like any other program could, and record everything that must never be visible."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from chaos.damage import lineages, needed_files
from penstock.checkpoint.manifest import Manifest
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage

_PAUSE_S = 0.25


class Observer:
    """Order of calls: `start`; `pause` and `resume` around the rig's own damage; `stop`. `look` works without `start`.

    Published files never change: manifests, deltas, bases and visible output. Output never disappears; checkpoint files
    can, but not while the newest manifest needs them. Checkpoint numbers ascend.
    """

    def __init__(self, work: Path) -> None:
        self.violations: list[str] = []
        self.looks = 0
        self._work = work
        self._stopped = threading.Event()
        self._looking = threading.Lock()
        self._thread: threading.Thread | None = None
        self._published: dict[str, str] = {}
        self._stats: dict[str, tuple[int, int, int]] = {}
        self._visible: dict[str, str] = {}
        self._newest: dict[str, int] = {}
        self._known: dict[str, dict[int, Manifest]] = {}

    # Observations are saved with the run, so that a continued run compares with those from before.
    def remember(self) -> dict[str, dict[str, str]]:
        with self._looking:
            return {"published": dict(self._published), "visible": dict(self._visible)}

    def recall(self, memory: dict[str, dict[str, str]]) -> None:
        self._published.update(memory.get("published", {}))
        self._visible.update(memory.get("visible", {}))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            with self._looking:
                self._look()

    def pause(self) -> None:
        self._looking.acquire()

    def resume(self) -> None:
        self._looking.release()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        with self._looking:
            self._look()

    def _look(self) -> None:
        self.looks += 1
        for lineage in lineages(self._work / "checkpoints"):
            self._look_at_lineage(lineage)
        self._look_at_output()

    def _wrong(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)

    def _look_at_lineage(self, lineage: Path) -> None:
        manifests = []
        # Not rglob, which raises if a directory disappears during the walk: a finished job removes its own.
        for path in (Path(folder, name) for folder, _, names in os.walk(lineage) for name in names):
            relative = path.relative_to(lineage)
            if path.name.startswith(".") or relative.parts[0] not in ("manifests", "deltas", "bases"):
                continue
            if self._changed(path, self._published):
                self._wrong(f"{path} changed after it was published")
            if relative.parts[0] == "manifests":
                manifests.append(int(path.name))
        if not manifests:
            return
        newest, before = max(manifests), self._newest.get(lineage.name, 0)
        if newest < before:
            self._wrong(f"{lineage}: the newest checkpoint is {newest}, after {before}")
        if newest > before:
            self._newest[lineage.name] = newest
            self._check_chain(lineage)

    def _check_chain(self, lineage: Path) -> None:
        storage = LocalStorage(lineage)
        for attempt in range(5):
            try:
                newest = needed_files(storage, self._known.setdefault(lineage.name, {}))
            except PenstockError as error:
                # A newer manifest can have been published meanwhile, and the files of its predecessor removed.
                if attempt == 4:
                    self._wrong(f"{lineage}: the newest checkpoint cannot be read: {error}")
                continue
            missing = [name for name in newest if not storage.exists(name)]
            if not missing:
                return
            if attempt == 4:
                self._wrong(f"{lineage}: {newest[0]} needs {missing[0]}, which is missing")

    def _look_at_output(self) -> None:
        out = self._work / "out"
        names = set()
        for path in out.rglob("*") if out.exists() else ():
            relative = path.relative_to(out)
            if any(part.startswith((".", "_")) for part in relative.parts) or not path.is_file():
                continue
            names.add(str(path))
            new = str(path) not in self._visible
            if self._changed(path, self._visible):
                self._wrong(f"{path} changed after it became visible")
            elif new and not path.read_bytes().endswith(b"\n"):
                self._wrong(f"{path} is visible but incomplete")
        for gone in self._visible.keys() - names:
            self._wrong(f"{gone} disappeared after it became visible")

    def _changed(self, path: Path, known: dict[str, str]) -> bool:
        """Return whether a known file has different contents; read it only if its stat has changed."""
        try:
            stat = path.stat()
            identity = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._stats.get(str(path)) == identity:
                return False
            content = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        except FileNotFoundError:
            return False
        self._stats[str(path)] = identity
        return known.setdefault(str(path), content) != content
