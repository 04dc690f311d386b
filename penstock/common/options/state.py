"""Options for state: the backend, its files and its memory."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Class, Size, Text, Truth, Whole

BACKEND_OPTIONS = "state.backend."
"""Settings with this prefix are passed to the backend."""
CUSTOM_BACKEND_OPTIONS = f"{BACKEND_OPTIONS}custom."
"""Settings with this prefix are passed to a user-defined backend."""

BACKEND_ALIASES = {"jobmanager": "memory", "heap": "hashmap", "fs": "filesystem", "forst": "rocksdb"}

STATE_BACKEND = optional(
    "state.backend",
    Class(
        "memory",
        "hashmap",
        "filesystem",
        "rocksdb",
        also=BACKEND_ALIASES,
    ),
    "memory if checkpoints are enabled without a checkpoint directory, else filesystem",
    "`memory`, `hashmap` (memory with checkpoints in files), `filesystem`, `rocksdb` or `package.module:Factory`.",
    aliases=("state.backend.type",),
)
ASYNCHRONOUS_SNAPSHOTS = option(
    f"{BACKEND_OPTIONS}async", Truth(), "true", "`false`: write bases and remove files within the epoch."
)
MAX_STATE_SIZE = option(
    f"{BACKEND_OPTIONS}memory.max-state-size",
    Size(),
    "5242880",
    "Maximum state size of an operator whose checkpoints are kept in the driver's memory.",
)
LOCAL_DIRECTORIES = option(
    f"{BACKEND_OPTIONS}local-dir",
    Text(),
    "",
    "Comma-separated directories for replicas on each host.",
    aliases=("state.backend.rocksdb.localdir", "state.backend.rocksdb.checkpointdir", "state.backend.forst.local-dir"),
    default_text="`penstock-replicas-<uid>` below the temporary directory",
)
ALLOCATION = option(
    f"{BACKEND_OPTIONS}local-dir.allocation",
    Choice("RANDOM_START", "ROUND_ROBIN", "LEAST_LOADED"),
    "RANDOM_START",
    "How a new replica's directory is chosen: `RANDOM_START`, `ROUND_ROBIN` or `LEAST_LOADED`.",
)
ROCKSDB_CACHE = option(
    f"{BACKEND_OPTIONS}rocksdb.memory.cache", Size(1), "128 mb", "RocksDB: block cache per worker process."
)
ROCKSDB_WRITE_BUFFERS = option(
    f"{BACKEND_OPTIONS}rocksdb.memory.write-buffers",
    Size(1),
    "32 mb",
    "RocksDB: memory for unflushed changes, per worker process.",
)
ROCKSDB_THREADS = option(
    f"{BACKEND_OPTIONS}rocksdb.thread.num",
    Whole(1, 1024),
    "2",
    "RocksDB: threads for flushes and compactions, per worker process.",
)
TIMER_SERVICE_FACTORY = option(
    f"{BACKEND_OPTIONS}rocksdb.timer-service.factory",
    Choice("ROCKSDB", "HEAP"),
    "ROCKSDB",
    "`ROCKSDB` or `HEAP`. With either one, timers live in the store and the next ones to fire in memory.",
    aliases=("state.backend.rocksdb.timer-server.factory",),
)
TRANSFER_THREADS = option(
    f"{BACKEND_OPTIONS}rocksdb.checkpoint.transfer.thread.num",
    Whole(1, 1024),
    "4",
    "Number of files that a task downloads in parallel when it rebuilds a replica.",
    aliases=("state.backend.rocksdb.checkpoint.transfer.threads.num",),
)
OVERLAY_MEMORY = option(
    "penstock.state.overlay.memory",
    Size(1),
    "134217728",
    "Bytes of changed keyed state that one task keeps in memory. Changes beyond this limit spill to local disk until "
    "the epoch ends.",
)
STANDBY_REPLICAS = option(
    "penstock.state.standby-replicas",
    Whole(0, 16),
    "0",
    "On a cluster: how many further executors follow the state of each subtask, so that one of them takes over without "
    "a rebuild if its executor dies.",
)
