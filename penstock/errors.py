"""The root of every error Penstock raises; subclasses live near the code that raises them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str


class PenstockError(Exception):
    """Something the user or operator can act on. The message says what, where, and what to do next.

    `fix` is the end of the message, where it says what to write instead. `places` are the user's lines to look at,
    most important first; without them they are those of the traceback.
    """

    problem = ""
    fix = ""
    places: tuple[Place, ...] = ()
    lasting = False
    """Whether going on from the last checkpoint would only lead here again: then no restart strategy is asked."""

    def __init__(self, problem: str = "", *details: Any, fix: str = "", places: tuple[Place | None, ...] = ()) -> None:
        super().__init__(problem, *details)
        self.problem = problem
        self.fix = fix
        self.places = tuple(place for place in places if place is not None)

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
