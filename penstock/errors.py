"""The root of every error Penstock raises; subclasses live near the code that raises them."""

from __future__ import annotations

from typing import Any, NamedTuple


class SourceLocation(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str


class PenstockError(Exception):
    """Something the user or operator can act on. The message says what, where, and what to do next.

    `fix` is the end of the message, where it says what to write instead. `locations` are the user's lines to look at,
    most important first; without them they are those of the traceback. `retryable`: if it is not given, the class
    decides.
    """

    problem = ""
    fix = ""
    locations: tuple[SourceLocation, ...] = ()
    retryable = True
    """Whether the restart strategy decides. False: a restart from the last checkpoint would fail in the same way."""

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
        """Show this line of the user's, unless the error already names one."""
        self.locations = self.locations or (location,)

    def statement(self) -> str:
        """The message without the fix."""
        return self.problem

    def headline(self) -> str:
        """What is wrong, as it stands behind the user's file and line."""
        return f"{type(self).__name__}: {self.statement()}"

    def context(self) -> str:
        """Where in the job it happened, if there is more to say than in the message."""
        return ""

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}" if self.fix else self.problem
