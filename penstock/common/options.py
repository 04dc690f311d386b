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

from penstock.errors import PenstockError


class BadSetting(PenstockError):
    """A setting is unknown or has a value that cannot be used; the message names the key."""


@dataclass(frozen=True)
class Option:
    key: str
    default: str
    meaning: str


OPTIONS = {
    option.key: option
    for option in (
        Option("parallelism.default", "Spark's cores", "subtasks of an operator that has no parallelism of its own"),
        Option("pipeline.name", "penstock-job", "the job's name, if `execute` is given none"),
        Option("pipeline.max-parallelism", "from the parallelism", "number of key groups; fixed for the life of state"),
        Option("pipeline.operator-chaining.enabled", "true", "whether operators are fused into chains"),
        Option("pipeline.auto-generate-uids", "true", "false: a program with an operator that has no uid is refused"),
        Option("execution.runtime-mode", "STREAMING", "STREAMING, BATCH (only final results) or AUTOMATIC"),
        Option("execution.checkpointing.interval", "off", "time between checkpoints, e.g. `10 s`; sets them on"),
        Option("execution.checkpointing.mode", "EXACTLY_ONCE", "EXACTLY_ONCE or AT_LEAST_ONCE"),
        Option("execution.checkpointing.timeout", "10 min", "a checkpoint that takes longer is expired"),
        Option(
            "execution.checkpointing.externalized-checkpoint-retention",
            "NO_EXTERNALIZED_CHECKPOINTS",
            "RETAIN_ON_CANCELLATION keeps the checkpoints of a job that has ended",
        ),
        Option("state.backend", "filesystem if a directory is set, else memory", "memory or filesystem"),
        Option("state.backend.memory.max-state-size", "5242880", "largest state of one operator, Memory backend"),
        Option("state.backend.local-dir", "below the temporary directory", "where replicas live on each host"),
        Option("state.checkpoints.dir", "none", "where checkpoints go: a path or file: URI"),
        Option("taskmanager.memory.segment-size", "32768", "wanted bytes of a buffer"),
        Option(
            "penstock.state.overlay.memory",
            "134217728",
            "bytes of changed keyed state that one task holds in memory; what an epoch changes beyond it goes to local "
            "disk until the epoch ends",
        ),
        Option("penstock.epoch.max-records", "0 (all)", "records an epoch takes of a collection or batch DataFrame"),
    )
}

ALIASES = {
    "state.backend.type": "state.backend",
    "execution.checkpointing.dir": "state.checkpoints.dir",
    "state.checkpoint.dir": "state.checkpoints.dir",
}
"""Other spellings that are understood."""


def check_keys(keys: Iterable[str]) -> None:
    """Refuse what is no setting, with the nearest that is one. `spark.*` is Spark's own affair."""
    for key in keys:
        if key in OPTIONS or key in ALIASES or key.startswith("spark."):
            continue
        near = difflib.get_close_matches(key, [*OPTIONS, *ALIASES], n=1, cutoff=0.6)
        hint = (
            f"Did you mean '{ALIASES.get(near[0], near[0])}'?"
            if near
            else "docs/configuration.md lists the settings there are."
        )
        raise BadSetting(f"There is no setting '{key}'.", fix=hint)


def canonical(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with aliases replaced. The proper spelling wins where both are given."""
    named = {ALIASES[key]: value for key, value in settings.items() if key in ALIASES}
    return named | {key: value for key, value in settings.items() if key not in ALIASES}


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
        "from the variable `PENSTOCK_PROPERTIES` (both with lines `key: value`), from the program's `Configuration`, "
        "from `penstock run -D key=value`, and from calls such as `env.set_parallelism(4)`. `spark.*` is passed to "
        "Spark. An unknown key is an error.\n\n"
    )
    table = "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])
    spelled = "\n".join(["| also understood | as |", "|---|---|", *others])
    return f"{intro}{table}\n\n{spelled}\n"
