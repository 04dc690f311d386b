"""Errors about a value nested in another value."""

from __future__ import annotations

from typing import Self

from penstock.errors import PenstockError

__all__ = ["LocatedError"]


class LocatedError(PenstockError):
    """A problem, its fix, and the path from the outermost value to the wrong one.

    The innermost code raises the error without a location, and every enclosing container adds its part with `inside`.
    Valid values therefore pay nothing for the message.

    Operator action: change the value or type at the path that the message gives.
    """

    def __init__(self, problem: str, fix: str = "", where: str = "") -> None:
        super().__init__(problem, fix, where, fix=fix)
        self.where = where

    def inside(self, where: str) -> Self:
        """Return the same error with the location extended by the enclosing container."""
        return type(self)(self.problem, self.fix, f"{self.where}, in {where}" if self.where else where)

    def statement(self) -> str:
        return f"{self.problem} (at {self.where})" if self.where else self.problem

    def __str__(self) -> str:
        return f"{self.statement()}. {self.fix}" if self.fix else self.statement()
