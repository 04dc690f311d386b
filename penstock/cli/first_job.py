"""Inspection of the first job of a program instead of running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import typer

from penstock.cli.program import run_program
from penstock.common.configuration import Configuration
from penstock.datastream.launch import LaunchContext, launch
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph

Seen = TypeVar("Seen")
Look = Callable[[str, LogicalGraph, PhysicalGraph, Configuration], Seen]


class _Found(BaseException, Generic[Seen]):
    """Ends the program at the point where it would run its job. Not an Exception, so the program does not catch it."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen


def first_job(program: Path, arguments: list[str], look: Look[Seen], settings: Mapping[str, str] | None = None) -> Seen:
    """Return the result of `look` for the first job. Exit with code 1 if the program runs no job.

    Args:
        program: The program's file.
        arguments: The arguments of the program.
        look: Receives the job's name, graphs and settings.
        settings: The settings of the command line.
    """

    def found(name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration) -> NoReturn:
        raise _Found(look(name, logical, physical, configuration))

    launch(LaunchContext(settings=settings or {}, inspect=found))
    try:
        code = run_program(program, arguments)
    except _Found as ended:
        return ended.seen  # type: ignore[no-any-return]
    if code == 0:
        typer.echo("The program ended without running a job because it never called env.execute().", err=True)
    raise typer.Exit(code or 1)
