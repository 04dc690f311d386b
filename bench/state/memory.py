"""Observe the memory of Python workers from outside."""

import threading
from pathlib import Path


class WorkerMemory:
    """Context manager that records the peak anonymous and total resident memory of any one Python worker."""

    def __init__(self) -> None:
        self.anonymous = 0
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "WorkerMemory":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.peak, "no Python worker was observed, so this measures nothing"

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    command = (process / "cmdline").read_bytes()
                    if b"spark.daemon\0pyspark.worker" in command:
                        self._look((process / "status").read_text())
                except OSError:
                    continue  # has exited

    def _look(self, status: str) -> None:
        sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("RssAnon", "VmHWM")))
        self.anonymous = max(self.anonymous, _bytes(sizes["RssAnon"]))
        self.peak = max(self.peak, _bytes(sizes["VmHWM"]))


def _bytes(text: str) -> int:
    return int(text.split()[0]) * 1024
