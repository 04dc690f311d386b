"""Inspection of the first job of a program instead of running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NoReturn, TypeVar

import typer

from penstock.cli.shipping import Chosen, import_dependencies
from penstock.common.configuration import Configuration
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.program_runner import run_program
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph

Seen = TypeVar("Seen")
Look = Callable[[str, LogicalGraph, PhysicalGraph, Configuration], Seen]


class _Found(BaseException, Generic[Seen]):
    """Ends the program at the point where it would run its job. Not an Exception, so the program does not catch it."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen


def first_job(chosen: Chosen, look: Look[Seen], settings: Mapping[str, str] | None = None) -> Seen:
    """Return the result of `look` for the first job. Exit with code 1 if the program runs no job.

    Args:
        chosen: The program and its arguments.
        look: Receives the job's name, graphs and settings.
        settings: The settings of the command line.
    """

    def found(name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration) -> NoReturn:
        raise _Found(look(name, logical, physical, configuration))

    launch(LaunchContext(settings=settings or {}, inspect=found))
    import_dependencies(settings or {})
    try:
        code = run_program(chosen.program, chosen.arguments, chosen.module)
    except _Found as ended:
        return ended.seen  # type: ignore[no-any-return]
    if code == 0:
        typer.echo("The program ended without running a job because it never called env.execute().", err=True)
    raise typer.Exit(code or 1)
