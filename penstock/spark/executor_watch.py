"""The executors of a job, as Spark's status store reports them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from penstock.common.machine import physical_memory
from penstock.common.setting_types import Size
from penstock.common.wall_clock import now_ms
from penstock.driver.job_snapshot import ExecutorSnapshot

_SECONDS = 2.0
"""Time between two queries. One takes 2 ms with a few executors."""
_DRIVER = "driver"


class _Memory(msgspec.Struct, rename="camel"):
    """Spark's memory metrics of an executor, in bytes."""

    used_on_heap_storage_memory: int = 0
    total_on_heap_storage_memory: int = 0


class _Peak(msgspec.Struct):
    """Spark's peak metrics of an executor."""

    JVMHeapMemory: int = 0
    JVMOffHeapMemory: int = 0
    MinorGCCount: int = 0
    MinorGCTime: int = 0
    MajorGCCount: int = 0
    MajorGCTime: int = 0


class _Executor(msgspec.Struct, rename="camel"):
    """The part of Spark's `ExecutorSummary` that a snapshot shows."""

    id: str
    host_port: str = ""
    is_active: bool = True
    total_cores: int = 0
    max_tasks: int = 0
    active_tasks: int = 0
    is_excluded: bool = False
    executor_logs: dict[str, str] = {}
    memory_metrics: _Memory | None = None
    peak_memory_metrics: _Peak | None = None


class ExecutorWatch:
    """Queries Spark in its own thread. Reading the result does not wait for the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: list[ExecutorSnapshot] = []
        self._ended = threading.Event()

    def executors(self) -> Sequence[ExecutorSnapshot]:
        """Return the executors at the last query."""
        return self._known

    def start(self) -> None:
        """Query Spark repeatedly until `stop`."""
        threading.Thread(target=self._run, name="penstock-executors", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while True:
            try:
                self._known = list_executors(self._spark)
            except Exception:  # a JVM that is gone raises anything; the job's thread notices it
                self._known = []
                return
            if self._ended.wait(_SECONDS):
                return


def list_executors(spark: SparkSession) -> list[ExecutorSnapshot]:
    """Ask Spark for the executors that run tasks. On a `local` master, the driver is the only one."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    store = context._jsc.sc().statusStore()
    # One call for all executors: Spark's own JSON writer of its REST interface.
    mapper = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
    found = msgspec.json.decode(mapper.writeValueAsString(store.executorList(True)), type=list[_Executor])
    now = now_ms()
    heap = Size().parse("spark.executor.memory", context.getConf().get("spark.executor.memory", "1g"))
    executors = []
    for each in found:
        if not each.is_active or not each.max_tasks:
            # On a cluster, the driver is listed too, but runs no tasks.
            continue
        executors.append(_in_driver(jvm, each, now) if each.id == _DRIVER else _remote(each, heap, now))
    return executors


def _remote(each: _Executor, heap: int, now: int) -> ExecutorSnapshot:
    peak = each.peak_memory_metrics or _Peak()
    return msgspec.structs.replace(
        _common(each, now),
        heap_max=heap,
        heap_used=peak.JVMHeapMemory,
        heap_committed=peak.JVMHeapMemory,
        off_heap_used=peak.JVMOffHeapMemory,
        collectors={
            "Minor": (peak.MinorGCCount, peak.MinorGCTime),
            "Major": (peak.MajorGCCount, peak.MajorGCTime),
        },
    )


def _in_driver(jvm: Any, each: _Executor, now: int) -> ExecutorSnapshot:
    factory = jvm.java.lang.management.ManagementFactory
    memory = factory.getMemoryMXBean()
    heap = memory.getHeapMemoryUsage()
    return msgspec.structs.replace(
        _common(each, now),
        heap_max=heap.getMax(),
        heap_used=heap.getUsed(),
        heap_committed=heap.getCommitted(),
        off_heap_used=memory.getNonHeapMemoryUsage().getUsed(),
        physical_memory=physical_memory(),
        collectors={
            str(bean.getName()): (int(bean.getCollectionCount()), int(bean.getCollectionTime()))
            for bean in factory.getGarbageCollectorMXBeans()
        },
    )


def _common(each: _Executor, now: int) -> ExecutorSnapshot:
    memory = each.memory_metrics or _Memory()
    return ExecutorSnapshot(
        id=each.id,
        address=each.host_port,
        cores=each.total_cores,
        slots=each.max_tasks,
        active_tasks=each.active_tasks,
        excluded=each.is_excluded,
        storage_memory_max=memory.total_on_heap_storage_memory,
        storage_memory_used=memory.used_on_heap_storage_memory,
        seen_ms=now,
        logs=each.executor_logs,
    )
