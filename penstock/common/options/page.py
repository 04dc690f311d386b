"""Generate docs/reference/settings.md from the options, and from the rulings on Flink's settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.common.options.flink import cluster, jobs, metrics, state, tables
from penstock.common.options.flink.ruling import Ruling
from penstock.common.options.registry import ALIASES, OPTIONS, is_effective
from penstock.common.options.surrounding import CONF_VARIABLE, PROPERTIES_VARIABLE, SYSTEM_FILE

_SUBJECTS = {
    "Jobs": jobs.RULINGS,
    "State backends": state.RULINGS,
    "Processes, network and deployment": cluster.RULINGS,
    "Metrics, events and traces": metrics.RULINGS,
    "Table API": tables.RULINGS,
}
"""Rulings by heading."""


def options_page() -> str:
    """Return the text of docs/reference/settings.md."""
    rows = [f"| `{option.key}` | {option.default_text} | {option.meaning} |" for option in OPTIONS.values()]
    others = [f"| `{alias}` | `{key}` |" for alias, key in ALIASES.items()]
    intro = (
        "# Settings\n\n"
        "Settings come from these places. Each one overrides the ones before it.\n\n"
        "1. The configuration file, with lines `key: value`: the file that the environment variable "
        f"`{CONF_VARIABLE}` names; otherwise `~/.config/penstock/penstock.conf` (below `XDG_CONFIG_HOME` if that is "
        f"set); otherwise `{SYSTEM_FILE}`. Only the first of them that exists is read. If `{CONF_VARIABLE}` is set to "
        "an empty value, no file is read. `penstock version -v` prints which one applies.\n"
        f"2. The environment variable `{PROPERTIES_VARIABLE}`, in the same format.\n"
        "3. The program's `Configuration` (`from penstock.common import Configuration`).\n"
        "4. `penstock run -D key=value`.\n"
        "5. Calls such as `env.set_parallelism(4)`.\n\n"
        "Keys that start with `spark.` are passed to Spark. Building a job with an unknown key or an invalid value is "
        "an error; the message names the key and the accepted values. Every setting of Flink 2.3 and 1.20 is known: it "
        "is [effective](#effective-settings), [accepted without effect](#settings-of-flink-without-effect) or "
        "[refused](#settings-of-flink-that-are-refused).\n\n"
        "Write durations as `500 ms`, `10 s`, `10 min`, `2 h` or `1 d`, and sizes as `64 mb` or in bytes.\n\n"
        "## Effective settings\n\n"
    )
    table = "\n".join(["| Key | Default | Description |", "|---|---|---|", *rows])
    spelled = "\n".join(["| Alias | Key |", "|---|---|", *others])
    return f"{intro}{table}\n\n### Other spellings\n\n{spelled}\n\n{_refused()}\n{_without_effect()}"


def _refused() -> str:
    lines = [
        "## Settings of Flink that are refused",
        "",
        "A job with one of these settings does not start, because it would do something else than the setting asks "
        "for. Values that ask for what Penstock does are accepted.",
        "",
        "| Keys | Accepted values | Why, and what to do instead |",
        "|---|---|---|",
    ]
    for rulings in _SUBJECTS.values():
        for ruling in rulings:
            if ruling.refused:
                values = ", ".join(f"`{value}`" for value in ruling.harmless) or "none"
                lines.append(f"| {_keys(ruling)} | {values} | {ruling.why} {ruling.fix} |")
    return "\n".join(lines) + "\n"


def _without_effect() -> str:
    lines = [
        "## Settings of Flink without effect",
        "",
        "You can leave these settings in your program or configuration: the job starts, `Configuration` returns their "
        "values, and a line in the log names them. `<name>` stands for a part that you choose, and `*` for any rest.",
        "",
    ]
    for subject, rulings in _SUBJECTS.items():
        lines += [f"### {subject}", "", *_entries(rulings)]
    return "\n".join(lines).rstrip() + "\n"


def _entries(rulings: Iterable[Ruling]) -> Iterator[str]:
    for ruling in rulings:
        if not ruling.refused:
            yield f"{ruling.why}\n: {_keys(ruling)}\n"


def _keys(ruling: Ruling) -> str:
    return ", ".join(f"`{key}`" for key in sorted(ruling.keys) if not is_effective(key))
