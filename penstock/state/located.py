"""An error about a value inside another value, which says where."""

from __future__ import annotations

from typing import Self

from penstock.errors import PenstockError

__all__ = ["LocatedError"]


class LocatedError(PenstockError):
    """What is wrong, what to do, and the way from the outermost value to the wrong one.

    The innermost code raises it without a place; every container it passes through adds its own with
    `inside`, so that a value that is right pays nothing for the message.
    """

    def __init__(self, problem: str, fix: str = "", where: str = "") -> None:
        super().__init__(problem, fix, where, fix=fix)
        self.where = where

    def inside(self, where: str) -> Self:
        """The same error, seen from the container around it."""
        return type(self)(self.problem, self.fix, f"{self.where}, in {where}" if self.where else where)

    def statement(self) -> str:
        return f"{self.problem} (at {self.where})" if self.where else self.problem

    def __str__(self) -> str:
        return f"{self.statement()}. {self.fix}" if self.fix else self.statement()
