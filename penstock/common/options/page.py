"""Generate docs/reference/settings.md from the options."""

from __future__ import annotations

from penstock.common.options.registry import ALIASES, OPTIONS
from penstock.common.options.surrounding import CONF_VARIABLE, PROPERTIES_VARIABLE, SYSTEM_FILE


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
        "an error; the message names the key and the accepted values.\n\n"
        "Write durations as `500 ms`, `10 s`, `10 min`, `2 h` or `1 d`, and sizes as `64 mb` or in bytes.\n\n"
    )
    table = "\n".join(["| Key | Default | Description |", "|---|---|---|", *rows])
    spelled = "\n".join(["| Alias | Key |", "|---|---|", *others])
    return f"{intro}{table}\n\n{spelled}\n"
