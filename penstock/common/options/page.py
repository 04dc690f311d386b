"""docs/reference/settings.md, made of the options."""

from __future__ import annotations

from penstock.common.options.registry import ALIASES, OPTIONS
from penstock.common.options.surrounding import CONF_VARIABLE, PROPERTIES_VARIABLE


def options_page() -> str:
    """docs/reference/settings.md."""
    rows = [f"| `{option.key}` | {option.default_text} | {option.meaning} |" for option in OPTIONS.values()]
    others = [f"| `{alias}` | `{key}` |" for alias, key in ALIASES.items()]
    intro = (
        "# Settings\n\n"
        f"Settings come, from weakest to strongest, from the file that the environment variable `{CONF_VARIABLE}` "
        f"names, from the variable `{PROPERTIES_VARIABLE}` (both with lines `key: value`), from the program's "
        "`Configuration` (`from penstock.common import Configuration`), "
        "from `penstock run -D key=value`, and from calls such as `env.set_parallelism(4)`. `spark.*` is passed to "
        "Spark. An unknown key is an error, and so is a value that a setting cannot have: both are refused when the "
        "job is built, with the key and what it accepts.\n\n"
        "Durations are written `500 ms`, `10 s`, `10 min`, `2 h` or `1 d`; sizes `64 mb` or as plain bytes.\n\n"
    )
    table = "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])
    spelled = "\n".join(["| also understood | as |", "|---|---|", *others])
    return f"{intro}{table}\n\n{spelled}\n"
