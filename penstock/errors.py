"""The base class of every error that Penstock raises. Subclasses live next to the code that raises them."""

from __future__ import annotations

from typing import Any, NamedTuple


class SourceLocation(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str


class PenstockError(Exception):
    """An error that the user or operator can act on.

    The message states the problem, its location and the next step.

    Args:
        problem: The problem and its location.
        details: Further arguments to store in ``args``.
        fix: The end of the message, which says what to write instead.
        locations: The lines of the user's program to show, most important first. By default they come from the
            traceback.
        retryable: Whether a restart can succeed. By default the class decides.
    """

    problem = ""
    fix = ""
    locations: tuple[SourceLocation, ...] = ()
    retryable = True
    """Whether a restart from the last checkpoint can succeed. If False, the job fails without a restart."""

    def __init__(
        self,
        problem: str = "",
        *details: Any,
        fix: str = "",
        locations: tuple[SourceLocation | None, ...] = (),
        retryable: bool | None = None,
    ) -> None:
        super().__init__(problem, *details)
        if retryable is not None:
            self.retryable = retryable
        self.problem = problem
        self.fix = fix
        self.locations = tuple(each for each in locations if each is not None)

    def locate(self, location: SourceLocation) -> None:
        """Show a line of the user's program, unless the error already has one.

        Args:
            location: The line.
        """
        self.locations = self.locations or (location,)

    def statement(self) -> str:
        """Return the message without the fix."""
        return self.problem

    def headline(self) -> str:
        """Return the error type and the problem, to print after the user's file and line."""
        return f"{type(self).__name__}: {self.statement()}"

    def context(self) -> str:
        """Return where in the job the error occurred, if the message does not already say it."""
        return ""

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}" if self.fix else self.problem
