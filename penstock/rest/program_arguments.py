"""Translates Flink's request to run a program. Clients of PyFlink name a Java class that starts the Python program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.options.program import PYTHON_ARCHIVES, PYTHON_EXECUTABLE, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.rest.errors import BadRequest

PYTHON_DRIVER = "org.apache.flink.client.python.PythonDriver"

_FILE = ("-py", "--python")
_MODULE = ("-pym", "--pyModule")
_SETTINGS: Mapping[str, str] = {
    "-pyfs": PYTHON_FILES.key,
    "--pyFiles": PYTHON_FILES.key,
    "-pyreq": PYTHON_REQUIREMENTS.key,
    "--pyRequirements": PYTHON_REQUIREMENTS.key,
    "-pyarch": PYTHON_ARCHIVES.key,
    "--pyArchives": PYTHON_ARCHIVES.key,
    "-pyexec": PYTHON_EXECUTABLE.key,
    "--pyExecutable": PYTHON_EXECUTABLE.key,
}
_IGNORED = ("-pyclientexec", "--pyClientExecutable")
"""The interpreter of Flink's client. A JobManager runs with that of the service."""


_ARGUMENT = re.compile(r"""([^"']\S*|".+?"|'.+?')\s*""", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """How a program starts."""

    entry: str
    """A module or file; empty: the program decides."""
    arguments: list[str]
    settings: dict[str, str] = field(default_factory=dict)


def entry_of(entry_class: str, arguments: list[str]) -> Entry:
    """Return how a program starts.

    Without the options of Flink's PythonDriver, the entry class names the module. Raises BadRequest.
    """
    if entry_class != PYTHON_DRIVER:
        return Entry(entry_class, arguments)
    entry = ""
    settings: dict[str, str] = {}
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument not in (*_FILE, *_MODULE, *_SETTINGS, *_IGNORED):
            rest.append(argument)
            continue
        value = next(given, None)
        if not value:
            raise BadRequest(f"The program argument '{argument}' needs a value.")
        if argument in _SETTINGS:
            settings[_SETTINGS[argument]] = value
        elif argument in _IGNORED:
            continue
        elif entry:
            raise BadRequest("The program arguments name two programs.", fix="Pass either -py or -pym, once.")
        else:
            entry = value
    return Entry(entry, rest, settings)


def split_arguments(text: str) -> list[str]:
    """Split arguments that are one text, as Flink does: at white space, except between quotes."""
    return [match[1].strip("\"'") for match in _ARGUMENT.finditer(text.strip())]
