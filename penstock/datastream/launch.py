"""The launch context that a launcher such as ``penstock run`` passes to the environments of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.driver.assignment import Assignment
from penstock.errors import PenstockError, SourceLocation
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph

if TYPE_CHECKING:
    from penstock.spark.job import Job

Inspect = Callable[[str, LogicalGraph, PhysicalGraph, Configuration], NoReturn]
"""Receives the name, graphs and settings of a job. The exception that it raises ends the program."""


class SecondJob(PenstockError):
    """A program that was submitted to a cluster executed two jobs.

    Operator action: split the program. Each submission is one job with its own checkpoints.
    """

    retryable = False


@dataclass(kw_only=True)
class LaunchContext:
    """The context that `launch` installs before the program runs. A program started with `python` has an empty one."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the command line. They override the program's Configuration; method calls override them."""
    inspect: Inspect | None = None
    """Called with the first job of the program instead of running it."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Settings that apply where neither the program nor the user sets them."""
    final: Mapping[str, str] = field(default_factory=dict)
    """Settings that not even the program can override, such as the savepoint that a cluster's job starts from."""
    assignment: Assignment | None = None
    """The attempt of a cluster's job that this process runs. The program can then execute one job only."""
    attach: Callable[[Job, JobClient], Callable[[], None]] | None = None
    """Called before a job starts, instead of opening a control point for it. The result is called at its end."""
    observe: Callable[[Job, JobClient], Callable[[], None]] | None = None
    """Called before a job starts. The result is called at its end."""
    not_executed: dict[int, SourceLocation | None] | None = None
    """For each environment that has a source but was not executed, the line of its first source. None disables it."""

    def __post_init__(self) -> None:
        self._submitted = False

    def submitting(self) -> None:
        """Record that the program submits a job. Raises SecondJob if a cluster's job is already submitted."""
        if self._submitted and self.assignment is not None:
            raise SecondJob(
                "The program executes a second job, but a program that is submitted to a cluster is one job.",
                fix="Submit one program for each job, or run the program by hand with `penstock run`.",
            )
        self._submitted = True

    @property
    def submitted(self) -> bool:
        """Whether the program has submitted a job."""
        return self._submitted

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
