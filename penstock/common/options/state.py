"""Options of state: the backend, its files and its memory."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Class, Size, Text, Truth, Whole

BACKEND_OPTIONS = "state.backend."
"""What begins with this goes to the backend."""
CUSTOM_BACKEND_OPTIONS = f"{BACKEND_OPTIONS}custom."
"""Settings with this prefix are for a backend of the user's own."""

STATE_BACKEND = optional(
    "state.backend",
    Class(
        "memory",
        "hashmap",
        "filesystem",
        "rocksdb",
        also={"jobmanager": "memory", "heap": "hashmap", "fs": "filesystem"},
    ),
    "memory with checkpoints but without a directory for them, else filesystem",
    "memory, hashmap (memory with checkpoints in files), filesystem, rocksdb or `package.module:Factory`",
    aliases=("state.backend.type",),
)
ASYNCHRONOUS_SNAPSHOTS = option(
    f"{BACKEND_OPTIONS}async", Truth(), "true", "false: bases are made and files removed within the epoch"
)
MAX_STATE_SIZE = option(
    f"{BACKEND_OPTIONS}memory.max-state-size",
    Size(),
    "5242880",
    "largest state of one operator whose checkpoints are in the driver's memory",
)
LOCAL_DIRECTORIES = option(
    f"{BACKEND_OPTIONS}local-dir",
    Text(),
    "",
    "where replicas live on each host; several directories with commas between them",
    aliases=("state.backend.rocksdb.localdir",),
    default_text="`penstock-replicas-<user number>` below the temporary directory",
)
ALLOCATION = option(
    f"{BACKEND_OPTIONS}local-dir.allocation",
    Choice("RANDOM_START", "ROUND_ROBIN", "LEAST_LOADED"),
    "RANDOM_START",
    "which of several gets a new replica: RANDOM_START, ROUND_ROBIN or LEAST_LOADED",
)
ROCKSDB_CACHE = option(
    f"{BACKEND_OPTIONS}rocksdb.memory.cache", Size(1), "128 mb", "RocksDB: cache of blocks read, per worker process"
)
ROCKSDB_WRITE_BUFFERS = option(
    f"{BACKEND_OPTIONS}rocksdb.memory.write-buffers",
    Size(1),
    "32 mb",
    "RocksDB: unwritten changes, per worker process",
)
ROCKSDB_THREADS = option(
    f"{BACKEND_OPTIONS}rocksdb.thread.num",
    Whole(1, 1024),
    "2",
    "RocksDB: threads that flush and compact, per worker process",
)
TIMER_SERVICE_FACTORY = option(
    f"{BACKEND_OPTIONS}rocksdb.timer-service.factory",
    Choice("ROCKSDB", "HEAP"),
    "ROCKSDB",
    "ROCKSDB (in the store) or HEAP; timers are in the store, their next ones in memory, with either",
    aliases=("state.backend.rocksdb.timer-server.factory",),
)
TRANSFER_THREADS = option(
    f"{BACKEND_OPTIONS}rocksdb.checkpoint.transfer.thread.num",
    Whole(1, 1024),
    "4",
    "files a task fetches at once when it builds a replica",
    aliases=("state.backend.rocksdb.checkpoint.transfer.threads.num",),
)
OVERLAY_MEMORY = option(
    "penstock.state.overlay.memory",
    Size(1),
    "134217728",
    "bytes of changed keyed state that one task holds in memory; what an epoch changes beyond it goes to local "
    "disk until the epoch ends",
)
