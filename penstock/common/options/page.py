"""Generate docs/configuration.md from the options."""

from __future__ import annotations

from penstock.common.options.registry import ALIASES, OPTIONS
from penstock.common.options.surrounding import CONF_VARIABLE, PROPERTIES_VARIABLE


def options_page() -> str:
    """Return the text of docs/configuration.md."""
    rows = [f"| `{option.key}` | {option.default_text} | {option.meaning} |" for option in OPTIONS.values()]
    others = [f"| `{alias}` | `{key}` |" for alias, key in ALIASES.items()]
    intro = (
        "# Settings\n\n"
        f"Settings come from these places, from lowest to highest precedence: the file named by the environment "
        f"variable `{CONF_VARIABLE}`, the variable `{PROPERTIES_VARIABLE}` (both with lines `key: value`), the "
        "program's `Configuration` (`from penstock.common import Configuration`), `penstock run -D key=value`, and "
        "calls such as `env.set_parallelism(4)`. Keys that start with `spark.` are passed to Spark. An unknown key "
        "or an invalid value is an error, reported when the job is built with the key and the accepted values.\n\n"
        "Write durations as `500 ms`, `10 s`, `10 min`, `2 h` or `1 d`, and sizes as `64 mb` or in bytes.\n\n"
    )
    table = "\n".join(["| Key | Default | Description |", "|---|---|---|", *rows])
    spelled = "\n".join(["| Alias | Key |", "|---|---|", *others])
    return f"{intro}{table}\n\n{spelled}\n"
