"""The launch context that a launcher such as ``penstock run`` passes to the environments of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from penstock.common.configuration import Configuration
from penstock.errors import SourceLocation
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph

Inspect = Callable[[str, LogicalGraph, PhysicalGraph, Configuration], NoReturn]
"""Receives the name, graphs and settings of a job. The exception that it raises ends the program."""


@dataclass(kw_only=True)
class LaunchContext:
    """The context that `launch` installs before the program runs. A program started with `python` has an empty one."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the command line. They override the program's Configuration; method calls override them."""
    inspect: Inspect | None = None
    """Called with the first job of the program instead of running it."""
    not_executed: dict[int, SourceLocation | None] | None = None
    """For each environment that has a source but was not executed, the line of its first source. None disables it."""

    def declared(self, environment: object, location: SourceLocation | None) -> None:
        """Record that an environment has a source."""
        if self.not_executed is not None:
            self.not_executed.setdefault(id(environment), location)

    def executed(self, environment: object) -> None:
        """Record that an environment was executed."""
        if self.not_executed is not None:
            self.not_executed.pop(id(environment), None)


_context = LaunchContext()


def launch(context: LaunchContext) -> None:
    """Install ``context`` as the launch context of this process.

    It stays installed after the program's main thread ends, because other threads can still create environments.
    """
    global _context
    _context = context


def launch_context() -> LaunchContext:
    """Return the launch context of this process."""
    return _context
