"""Write the pages of docs/reference that the code determines: settings, command line and errors.

    make reference

tests/docs/test_reference.py fails when a page is out of date.
"""

import html
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import penstock
from penstock.common.options import options_page
from penstock.errors import PenstockError
from scripts.error_messages import messages
from scripts.rest_page import rest_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
NOTES = REFERENCE / "error-notes.md"
REMEDY = "Operator action:"
# Where the terminal or the locale would change the output of --help.
PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200", "PYTHONPATH": str(REFERENCE.parents[1])}

TOPICS = {
    "Settings and programs": ("absent", "common.", "graph.", "datastream."),
    "Functions, time and windows": ("runtime.",),
    "State and keys": ("state.",),
    "Checkpoints and savepoints": ("checkpoint.", "savepoint."),
    "Connectors": ("connectors.",),
    "Running jobs": ("driver.", "control.", "cli."),
    "The service": ("cluster.", "rest.", "web."),
    "Spark": ("spark.",),
    "State as tables": ("tables.",),
    "Queryable state": ("query.", "driver.queryable"),
    "Testing": ("testing.",),
}
"""By heading, what the modules of its errors begin with below `penstock.`."""


class Explained(NamedTuple):
    """What the docstring of an error says."""

    cause: str
    remedy: str


def pages() -> dict[Path, str]:
    """Return the generated pages by file."""
    return {
        REFERENCE / "settings.md": options_page(),
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "errors.md": errors_page(),
        REFERENCE / "rest.md": rest_page(),
    }


def errors() -> list[type[PenstockError]]:
    """Return every public error of Penstock, by module and name."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        importlib.import_module(module.name)
    found = set(_below(PenstockError))
    return sorted((each for each in found if each.__name__[0] != "_"), key=lambda each: (_module(each), each.__name__))


def _below(error: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for each in error.__subclasses__():
        if each.__module__.startswith("penstock."):
            yield each
        yield from _below(each)


def _module(error: type[PenstockError]) -> str:
    return error.__module__.removeprefix("penstock.")


def explained(error: type[PenstockError]) -> Explained:
    """Return cause and remedy of an error: its docstring up to "Operator action:", and behind it."""
    text = inspect.cleandoc(error.__doc__ or "")
    cause, _, remedy = text.partition(REMEDY)
    remedy = remedy.strip()
    return Explained(cause.strip(), remedy[:1].upper() + remedy[1:])


def notes() -> dict[str, str]:
    """Return what docs/reference/error-notes.md adds, by class."""
    parts = re.split(r"^## (\w+)\n", NOTES.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def errors_page() -> str:
    """Return docs/reference/errors.md."""
    all_errors = errors()
    texts = messages(error.__name__ for error in all_errors)
    added = notes()
    lines = [
        "# Errors",
        "",
        "Look up an error by its class or by words of its message. Each entry gives the cause, the remedy, whether a "
        "restart can help, and the texts of its messages; `…` stands for a value.",
        "",
        "Every error here is a `PenstockError` (`from penstock.errors import PenstockError`). For problems without an "
        "error message, see [Troubleshooting](../operate/troubleshooting.md).",
        "",
    ]
    for topic, prefixes in TOPICS.items():
        of_topic = [error for error in all_errors if f"{_module(error)}".startswith(prefixes)]
        if of_topic:
            lines += [f"## {topic}", ""]
        for error in sorted(of_topic, key=lambda each: each.__name__):
            lines += _entry(error, texts.get(error.__name__, []), added.get(error.__name__, ""))
    lines += [
        "## Next",
        "",
        "- [Troubleshooting](../operate/troubleshooting.md): symptoms, and where to look",
        "- [Recovery](../operate/recovery.md): which errors restart a job, and how often",
    ]
    return "\n".join(lines) + "\n"


def _entry(error: type[PenstockError], texts: list[str], note: str) -> list[str]:
    cause, remedy = explained(error)
    lines = [f"### {error.__name__}", "", _flowed(cause), ""]
    if remedy:
        lines += [f"**Remedy:** {_flowed(remedy)}", ""]
    if not error.retryable:
        lines += ["**Restart:** none; a restart from the last checkpoint would fail in the same way.", ""]
    if note:
        lines += [note, ""]
    if texts:
        lines += ["Messages:", "", *(f"- {_quoted(text)}" for text in texts), ""]
    return lines


def _flowed(text: str) -> str:
    """Join the lines of each paragraph, and take Sphinx's double backticks back to Markdown's."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("``", "`")


def _quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def cli_page() -> str:
    """Return docs/reference/cli.md: what Typer documents of the command, behind our introduction."""
    command = [sys.executable, "-m", "typer", "penstock.cli.main", "utils", "docs", "--name", "penstock"]
    documented = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **PLAIN}).stdout
    commands = html.unescape(documented[documented.index("\n## ") :])
    commands = re.sub(r"^(#+) `(.*)`$", r"\1 \2", commands, flags=re.MULTILINE)
    commands = re.sub(r"^\* `--help`.*\n", "", commands, flags=re.MULTILINE).replace("**Options**:\n\n\n", "")
    commands = commands.replace("```console\n$ ", "```text\n")
    intro = (
        "# Command line\n\n"
        "Every command and option of `penstock`, from the texts that `penstock COMMAND --help` prints. "
        "[Run a job](../run/local.md) and [Manage running jobs](../operate/running-jobs.md) show them in use.\n\n"
    )
    return f"{intro}{commands.strip()}\n"


def main() -> None:
    for file, text in pages().items():
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            print(f"Wrote {file.relative_to(REFERENCE.parents[1])}")


if __name__ == "__main__":
    main()
