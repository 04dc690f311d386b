"""How commands tell what went wrong."""

from __future__ import annotations

import typer

from penstock.common.error_format import short_form
from penstock.errors import PenstockError


class ShownErrors:
    """Shows an error of ours as programs show it, and ends the command with exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PenstockError):
            # There is no program here whose lines could be shown.
            typer.echo(short_form(error.with_traceback(None)), err=True)
            raise typer.Exit(1) from None
