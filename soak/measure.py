"""Measure the resources of a driver, its JVM, its Python workers and its directories."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SETTLE_S = 1.0
"""Spark's cleaner removes unreachable objects in a separate thread after a collection."""


class Jvm:
    """The driver's JVM, queried through its management beans."""

    def __init__(self, spark: Any) -> None:
        jvm = spark.sparkContext._jvm
        self._management = jvm.java.lang.management.ManagementFactory
        self._histogram = jvm.org.apache.spark.util.Utils.getHeapHistogram
        self.pid = int(jvm.java.lang.ProcessHandle.current().pid())

    def collect(self) -> None:
        """Collect garbage twice: the second run frees what Spark's cleaner released after the first."""
        for _ in range(2):
            self._management.getMemoryMXBean().gc()
            time.sleep(_SETTLE_S)

    def heap(self) -> int:
        return int(self._management.getMemoryMXBean().getHeapMemoryUsage().getUsed())

    def metaspace(self) -> int:
        pools = self._management.getMemoryPoolMXBeans()
        return sum(int(pool.getUsage().getUsed()) for pool in pools if pool.getName() == "Metaspace")

    def instances(self) -> dict[str, int]:
        """Return live instances by class name, after a collection. Needs a JDK: Spark calls its `jmap`."""
        lines = [re.match(r"\s*\d+:\s+(\d+)\s+\d+\s+(\S+)", line) for line in self._histogram()]
        return {line[2]: int(line[1]) for line in lines if line}


def measure(jvm: Jvm, counts: Path, directories: dict[str, Path]) -> dict[str, int]:
    """Return one row of the table. Does not collect in Python, which could hide a leak."""
    disk = {}
    for name, directory in directories.items():
        # Before the collection, during which Spark's cleaner removes files.
        files = list(_files(directory))
        disk[f"{name} bytes"] = sum(files)
        disk[f"{name} files"] = len(files)
    jvm.collect()
    driver = os.getpid()
    workers = [pid for pid in _descendants(driver) if pid != jvm.pid and _is_python(pid)]
    objects = [int(file.read_text()) for file in counts.glob("[0-9]*") if int(file.name) in workers]
    return {
        "heap": jvm.heap(),
        "metaspace": jvm.metaspace(),
        "jvm threads": _threads(jvm.pid),
        "jvm rss": _rss(jvm.pid),
        "driver rss": _rss(driver),
        "driver objects": len(gc.get_objects()),
        "driver threads": _threads(driver),
        "driver files": len(os.listdir("/proc/self/fd")),
        "workers": len(workers),
        "worker rss": max(map(_rss, workers), default=0),
        "worker objects": max(objects, default=0),
        **disk,
    }


def _descendants(root: int) -> Iterator[int]:
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        try:
            children = [int(pid) for pid in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def _status(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _rss(pid: int) -> int:
    return _status(pid, "VmRSS") * 1024


def _threads(pid: int) -> int:
    return _status(pid, "Threads")


def _files(directory: Path) -> Iterator[int]:
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
