"""Error output of commands."""

from __future__ import annotations

import typer

from penstock.common.error_format import short_form
from penstock.errors import PenstockError


class ShownErrors:
    """Prints a PenstockError in short form and ends the command with exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PenstockError):
            # A command has no user program whose lines could be shown.
            typer.echo(short_form(error.with_traceback(None)), err=True)
            raise typer.Exit(1) from None
