"""Looking at the first job that a program runs, in the place of running it."""

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
    """Ends the program where it would have run its job. Not an Exception: the program must not catch it."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen


def first_job(program: Path, arguments: list[str], look: Look[Seen], settings: Mapping[str, str] | None = None) -> Seen:
    """What `look` gives for the job. Ends the command with exit code 1 where there is none.

    `settings`: those of the command line.
    """

    def found(name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration) -> NoReturn:
        raise _Found(look(name, logical, physical, configuration))

    launch(LaunchContext(settings=settings or {}, inspect=found))
    try:
        code = run_program(program, arguments)
    except _Found as ended:
        return ended.seen  # type: ignore[no-any-return]
    if code == 0:
        typer.echo("The program ended without running a job: it never called env.execute().", err=True)
    raise typer.Exit(code or 1)
