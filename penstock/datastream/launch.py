"""What the launcher of a program, such as `penstock run`, gives to the environments that the program makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from penstock.common.configuration import Configuration
from penstock.errors import SourceLocation
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph

Inspect = Callable[[str, LogicalGraph, PhysicalGraph, Configuration], NoReturn]
"""Takes the name, the graphs and the settings of a job; what it raises ends the program."""


@dataclass(kw_only=True)
class LaunchContext:
    """Passed to `launch` before the program runs. A program that `python` runs has the empty one."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the command line. They win over the program's Configuration, and calls win over them."""
    inspect: Inspect | None = None
    """Called with the first job of the program, which then does not run."""
    not_executed: dict[int, SourceLocation | None] | None = None
    """By environment that has a source and was not executed: the line of its first source. None: not recorded."""

    def declared(self, environment: object, location: SourceLocation | None) -> None:
        """The environment was given a source."""
        if self.not_executed is not None:
            self.not_executed.setdefault(id(environment), location)

    def executed(self, environment: object) -> None:
        """The environment was executed."""
        if self.not_executed is not None:
            self.not_executed.pop(id(environment), None)


_context = LaunchContext()


def launch(context: LaunchContext) -> None:
    """Make `context` the one of this process.

    It stays after the program's main thread has ended: other threads of the program may still make environments.
    """
    global _context
    _context = context


def launch_context() -> LaunchContext:
    """Return the context of this process."""
    return _context
