"""Every setting Penstock knows, and where settings come from.

From weakest to strongest: the file that PENSTOCK_CONF names, the variable PENSTOCK_PROPERTIES (both with lines
`key: value`), the program's Configuration, `penstock run -D key=value`, and calls such as `set_parallelism`.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common.setting_types import (
    MOST_LONG,
    BadSetting,
    Choice,
    Class,
    Length,
    Number,
    SettingType,
    Size,
    Text,
    Truth,
    Whole,
)

__all__ = [
    "ALIASES",
    "OPTIONS",
    "OWN_BACKEND",
    "STORE_OPTIONS",
    "BadSetting",
    "Option",
    "canonical",
    "check_keys",
    "check_values",
    "command_line_settings",
    "milliseconds",
    "options_page",
    "parse_lines",
    "store_options",
    "surrounding_settings",
    "value",
]


@dataclass(frozen=True)
class Option:
    """A setting: its key, default, meaning and type."""

    key: str
    default: str
    meaning: str
    type: SettingType


QUIET = "penstock.console.quiet"

OPTIONS = {
    option.key: option
    for option in (
        Option(
            "parallelism.default",
            "Spark's cores",
            "subtasks of an operator that has no parallelism of its own",
            Whole(1, 32_768),
        ),
        Option("pipeline.name", "penstock-job", "the job's name, if `execute` is given none", Text(may_be_empty=False)),
        Option(
            "pipeline.max-parallelism",
            "from the parallelism",
            "number of key groups; fixed for the life of state",
            Whole(1, 32_768),
        ),
        Option("pipeline.operator-chaining.enabled", "true", "whether operators are fused into chains", Truth()),
        Option(
            "pipeline.auto-generate-uids",
            "true",
            "false: a program with an operator that has no uid is refused",
            Truth(),
        ),
        Option(
            "execution.runtime-mode",
            "STREAMING",
            "STREAMING, BATCH (only final results) or AUTOMATIC",
            Choice("STREAMING", "BATCH", "AUTOMATIC"),
        ),
        Option(
            "execution.checkpointing.interval", "off", "time between checkpoints, e.g. `10 s`; sets them on", Length()
        ),
        Option(
            "execution.checkpointing.mode",
            "EXACTLY_ONCE",
            "AT_LEAST_ONCE lets sinks write before the checkpoint is complete",
            Choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
        ),
        Option(
            "execution.checkpointing.timeout",
            "10 min",
            "a checkpoint that takes longer is given up as expired",
            Length(1),
        ),
        Option(
            "execution.checkpointing.min-pause",
            "0 ms",
            "least time from the end of a checkpoint to the next barrier",
            Length(),
        ),
        Option(
            "execution.checkpointing.max-concurrent-checkpoints",
            "1",
            "only 1: an epoch builds on the one before",
            Whole(),
        ),
        Option(
            "execution.checkpointing.tolerable-failed-checkpoints",
            "0",
            "how often an epoch that expired is run again in its place, before the restart strategy is asked",
            Whole(),
        ),
        Option(
            "execution.checkpointing.externalized-checkpoint-retention",
            "NO_EXTERNALIZED_CHECKPOINTS",
            "RETAIN_ON_CANCELLATION keeps the checkpoints of a job that has ended; also DELETE_ON_CANCELLATION",
            Choice(
                "RETAIN_ON_CANCELLATION",
                "DELETE_ON_CANCELLATION",
                "NO_EXTERNALIZED_CHECKPOINTS",
                also={"NO_EXTERNALIZED": "NO_EXTERNALIZED_CHECKPOINTS"},
            ),
        ),
        Option(
            "restart-strategy.type",
            "exponential-delay with checkpoints, else none",
            "none, fixed-delay, failure-rate or exponential-delay",
            Choice(
                "none",
                "fixed-delay",
                "failure-rate",
                "exponential-delay",
                also={
                    **dict.fromkeys(("off", "disable"), "none"),
                    **{"fixeddelay": "fixed-delay", "failurerate": "failure-rate"},
                    "exponentialdelay": "exponential-delay",
                },
            ),
        ),
        Option("restart-strategy.fixed-delay.attempts", "1", "restarts of a job's life", Whole(0, MOST_LONG)),
        Option("restart-strategy.fixed-delay.delay", "1 s", "time before a restart", Length()),
        Option(
            "restart-strategy.failure-rate.max-failures-per-interval",
            "1",
            "one more within the interval is one too many",
            Whole(1, MOST_LONG),
        ),
        Option(
            "restart-strategy.failure-rate.failure-rate-interval",
            "1 min",
            "time in which failures are counted",
            Length(1),
        ),
        Option("restart-strategy.failure-rate.delay", "1 s", "time before a restart", Length()),
        Option("restart-strategy.exponential-delay.initial-backoff", "1 s", "time before the first restart", Length(1)),
        Option("restart-strategy.exponential-delay.max-backoff", "1 min", "longest time before a restart", Length(1)),
        Option("restart-strategy.exponential-delay.backoff-multiplier", "1.5", "how that time grows", Number(1, 1e6)),
        Option(
            "restart-strategy.exponential-delay.reset-backoff-threshold",
            "1 h",
            "after so long without failure it is the first one again",
            Length(),
        ),
        Option(
            "restart-strategy.exponential-delay.jitter-factor",
            "0.1",
            "part of the time that is left to chance",
            Number(0, 1),
        ),
        Option(
            "restart-strategy.exponential-delay.attempts-before-reset-backoff",
            "without end",
            "restarts until that reset",
            Whole(1, MOST_LONG),
        ),
        Option(
            "state.backend",
            "memory with checkpoints but without a directory for them, else filesystem",
            "memory, hashmap (memory with checkpoints in files), filesystem, rocksdb or `package.module:Factory`",
            Class(
                "memory",
                "hashmap",
                "filesystem",
                "rocksdb",
                also={"jobmanager": "memory", "heap": "hashmap", "fs": "filesystem"},
            ),
        ),
        Option("execution.checkpointing.num-retained", "1", "completed checkpoints that stay usable", Whole(1)),
        Option(
            "penstock.checkpoint.base.min-bytes",
            "1048576",
            "bytes of a block's deltas that are not worth a new base",
            Size(),
        ),
        Option("state.backend.async", "true", "false: bases are made and files removed within the epoch", Truth()),
        Option(
            "state.backend.memory.max-state-size",
            "5242880",
            "largest state of one operator whose checkpoints are in the driver's memory",
            Size(),
        ),
        Option(
            "penstock.checkpoint.unnamed-directory",
            "refuse",
            "checkpoints of an earlier version that can belong to this job or to another with a similar name: adopt or "
            "ignore them, or refuse to start",
            Choice("refuse", "adopt", "ignore"),
        ),
        Option(
            "state.backend.local-dir",
            "`penstock-replicas-<user number>` below the temporary directory",
            "where replicas live on each host; several directories with commas between them",
            Text(),
        ),
        Option(
            "state.backend.local-dir.allocation",
            "RANDOM_START",
            "which of several gets a new replica: RANDOM_START, ROUND_ROBIN or LEAST_LOADED",
            Choice("RANDOM_START", "ROUND_ROBIN", "LEAST_LOADED"),
        ),
        Option(
            "state.backend.rocksdb.memory.cache", "128 mb", "RocksDB: cache of blocks read, per worker process", Size(1)
        ),
        Option(
            "state.backend.rocksdb.memory.write-buffers",
            "32 mb",
            "RocksDB: unwritten changes, per worker process",
            Size(1),
        ),
        Option(
            "state.backend.rocksdb.thread.num",
            "2",
            "RocksDB: threads that flush and compact, per worker process",
            Whole(1, 1024),
        ),
        Option(
            "state.backend.rocksdb.timer-service.factory",
            "ROCKSDB",
            "ROCKSDB (in the store) or HEAP; timers are in the store, their next ones in memory, with either",
            Choice("ROCKSDB", "HEAP"),
        ),
        Option(
            "state.backend.rocksdb.checkpoint.transfer.thread.num",
            "4",
            "files a task fetches at once when it builds a replica",
            Whole(1, 1024),
        ),
        Option(
            "state.checkpoints.dir", "none", "where checkpoints go: a path, or a URI such as `s3://bucket/path`", Text()
        ),
        Option(
            "state.checkpoints.fs.*",
            "none",
            "options of the store at that URI, and of that with savepoints, such as "
            "`state.checkpoints.fs.endpoint_url`; never shown",
            Text(),
        ),
        Option("state.savepoints.dir", "none", "where savepoints go that are given no directory", Text()),
        Option("execution.state-recovery.path", "none", "the savepoint that the job is to begin with", Text()),
        Option(
            "execution.state-recovery.claim-mode",
            "NO_CLAIM",
            "CLAIM: that savepoint is removed when the job has a checkpoint of its own",
            Choice("CLAIM", "NO_CLAIM"),
        ),
        Option(
            "execution.state-recovery.ignore-unclaimed-state",
            "false",
            "true: what of that savepoint has no operator in the program is left behind",
            Truth(),
        ),
        Option(
            "penstock.slots.wait",
            "false",
            "true: while Spark has fewer slots than the widest operator has subtasks, no epoch begins; false: tasks "
            "run in turns",
            Truth(),
        ),
        Option("slot.request.timeout", "5 min", "how long a job waits for slots before it fails", Length()),
        Option("taskmanager.memory.segment-size", "32768", "wanted bytes of a buffer", Size(1, 1 << 30)),
        Option(
            "penstock.state.overlay.memory",
            "134217728",
            "bytes of changed keyed state that one task holds in memory; what an epoch changes beyond it goes to local "
            "disk until the epoch ends",
            Size(1),
        ),
        Option(
            "penstock.control.dir",
            "`penstock-control-<user number>` below the temporary directory",
            "where commands such as `penstock stop` find the jobs of this host; for this user alone",
            Text(),
        ),
        Option("penstock.control.enabled", "true", "false: no command reaches the job", Truth()),
        Option(
            QUIET,
            "false",
            "true: a job prints warnings and errors only, and no progress; `penstock run --quiet` sets it",
            Truth(),
        ),
        Option(
            "penstock.epoch.max-records",
            "0 (all)",
            "records an epoch takes of a source in Python, a collection or a batch DataFrame",
            Whole(0, MOST_LONG),
        ),
        Option(
            "penstock.flow.enabled",
            "true, but not with `penstock.epoch.max-records`, nor for input that ends without a checkpoint interval",
            "whether sources are held back so that epochs take the time they should",
            Truth(),
        ),
        Option(
            "penstock.flow.target-epoch-time",
            "the checkpoint interval, 1 s at least",
            "how long an epoch should take; sets flow control on",
            Length(1),
        ),
    )
}

OWN_BACKEND = "state.backend.custom."
"""Settings with this prefix are for a backend of the user's own."""
STORE_OPTIONS = "state.checkpoints.fs."
"""What begins with this goes to the store of the checkpoints."""

ALIASES = {
    "state.backend.type": "state.backend",
    "execution.checkpointing.dir": "state.checkpoints.dir",
    "state.checkpoint.dir": "state.checkpoints.dir",
    "execution.checkpointing.savepoint-dir": "state.savepoints.dir",
    "state.savepoint.dir": "state.savepoints.dir",
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.backend.rocksdb.localdir": "state.backend.local-dir",
    "state.backend.rocksdb.timer-server.factory": "state.backend.rocksdb.timer-service.factory",
    "state.backend.rocksdb.checkpoint.transfer.threads.num": "state.backend.rocksdb.checkpoint.transfer.thread.num",
    "restart-strategy": "restart-strategy.type",
}
"""Other spellings that are understood."""


def check_keys(keys: Iterable[str]) -> None:
    """Refuse what is no setting, with the nearest that is one. `spark.*` is Spark's own affair."""
    for key in keys:
        if key in OPTIONS or key in ALIASES or key.startswith(("spark.", OWN_BACKEND, STORE_OPTIONS)):
            continue
        near = difflib.get_close_matches(key, [*OPTIONS, *ALIASES], n=1, cutoff=0.6)
        hint = (
            f"Did you mean '{ALIASES.get(near[0], near[0])}'?"
            if near
            else "docs/configuration.md lists the settings there are."
        )
        raise BadSetting(f"There is no setting '{key}'.", fix=hint)


def store_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """What was set for the store of the checkpoints: `true`, `false` and JSON objects as what they are, else text."""
    options: dict[str, Any] = {}
    for key, text in settings.items():
        if key.startswith(STORE_OPTIONS):
            value: Any = {"true": True, "false": False}.get(text.lower(), text)
            if text.startswith("{"):
                try:
                    value = json.loads(text)
                except ValueError:
                    raise BadSetting(f"The value of {key} begins with {{ but is no JSON object.") from None
            options[key.removeprefix(STORE_OPTIONS)] = value
    return options


def canonical(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with aliases replaced. The proper spelling wins where both are given."""
    named = {ALIASES[key]: value for key, value in settings.items() if key in ALIASES}
    return named | {key: value for key, value in settings.items() if key not in ALIASES}


def check_values(settings: Mapping[str, str]) -> None:
    """Refuse a value that its setting cannot have, with the key and what it accepts."""
    for key, text in settings.items():
        key = ALIASES.get(key, key)
        if key in OPTIONS:
            OPTIONS[key].type.parse(key, text)


def value(settings: Mapping[str, str], key: str, default: Any) -> Any:
    """A setting's value, read as its type says; `default` where it is not set."""
    return OPTIONS[key].type.parse(key, settings[key]) if key in settings else default


def milliseconds(key: str, text: str) -> int:
    """A duration as Flink writes it: '500 ms', '10 s', '10 min', or plain milliseconds."""
    kind = OPTIONS[key].type if key in OPTIONS else Length()
    return int(kind.parse(key, text))


def surrounding_settings() -> dict[str, str]:
    """What the file and the environment set."""
    settings: dict[str, str] = {}
    path = os.environ.get("PENSTOCK_CONF")
    if path:
        try:
            settings |= parse_lines(Path(path).read_text(), path)
        except OSError as error:
            raise BadSetting(f"PENSTOCK_CONF names '{path}', which cannot be read: {error.strerror}.") from None
    settings |= parse_lines(os.environ.get("PENSTOCK_PROPERTIES", ""), "PENSTOCK_PROPERTIES")
    return settings


def command_line_settings() -> dict[str, str]:
    """What `penstock run -D key=value` set."""
    return dict(json.loads(os.environ.get("PENSTOCK_SETTINGS", "{}")))


def parse_lines(text: str, where: str) -> dict[str, str]:
    """Lines `key: value`; empty lines and those that begin with # say nothing."""
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if not colon or not key.strip():
            raise BadSetting(f"{where}, line {number}: '{line}' is no setting; write `key: value`.")
        settings[key.strip()] = value.split(" #")[0].strip().strip("'\"")
    return settings


def options_page() -> str:
    """docs/configuration.md."""
    rows = [f"| `{option.key}` | {option.default} | {option.meaning} |" for option in OPTIONS.values()]
    others = [f"| `{alias}` | `{key}` |" for alias, key in ALIASES.items()]
    intro = (
        "# Settings\n\n"
        "Settings come, from weakest to strongest, from the file that the environment variable `PENSTOCK_CONF` names, "
        "from the variable `PENSTOCK_PROPERTIES` (both with lines `key: value`), from the program's `Configuration` "
        "(`from penstock.common import Configuration`), "
        "from `penstock run -D key=value`, and from calls such as `env.set_parallelism(4)`. `spark.*` is passed to "
        "Spark. An unknown key is an error, and so is a value that a setting cannot have: both are refused when the "
        "job is built, with the key and what it accepts.\n\n"
        "Durations are written `500 ms`, `10 s`, `10 min`, `2 h` or `1 d`; sizes `64 mb` or as plain bytes.\n\n"
    )
    table = "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])
    spelled = "\n".join(["| also understood | as |", "|---|---|", *others])
    return f"{intro}{table}\n\n{spelled}\n"
