"""Turning an exception in a task into words for the user: which operator, and the user's own frames."""

from __future__ import annotations

import os
import traceback
from types import TracebackType
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.runtime.inbox import Misaligned
from penstock.runtime.operators import Operator
from penstock.runtime.rows import Failure
from penstock.state.engines.base import EngineError
from penstock.state.files import CorruptFile
from penstock.state.replica import StaleAttempt
from penstock.state.storage import StorageError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_NOT_THE_USERS = (Misaligned, EngineError, StorageError, CorruptFile, StaleAttempt)
"""Errors that running the epoch again may cure; every other comes again, for it follows from program and input."""


class Party(NamedTuple):
    """Who is named in a failure."""

    name: str
    uid: str
    is_source: bool = False


def party_of(operator: Operator) -> Party:
    return Party(operator.name, operator.uid)


class Blamed(Exception):
    """Carries, as its cause, an error of another party than the operator whose frame is innermost."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self.party = party


def describe_failure(error: BaseException, operators: list[Operator], otherwise: Party, subtask: int) -> Failure:
    """Blames the operator of the chain whose frame is innermost, or `otherwise` if there is none."""
    if isinstance(error, Blamed) and error.__cause__ is not None:
        party, error = error.party, error.__cause__
    else:
        operator = _innermost_operator(error.__traceback__, operators)
        party = otherwise if operator is None else party_of(operator)
    from_user = not isinstance(error, _NOT_THE_USERS)
    return Failure(party.name, party.uid, subtask, describe_error(error), user_traceback(error), from_user)


def describe_error(error: BaseException) -> str:
    # Our own errors speak for themselves; a user's is known by its class too.
    if isinstance(error, PenstockError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def user_traceback(error: BaseException) -> str:
    """What Python prints above the error, with only the frames outside Penstock; empty where there are none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    text = "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)]) if frames else ""
    if isinstance(error, PenstockError):
        return text.rstrip()
    before, joint = error.__cause__, "The above exception was the direct cause of the following exception:"
    if before is None and not error.__suppress_context__:
        before, joint = error.__context__, "During handling of the above exception, another exception occurred:"
    if before is not None:
        text = f"{user_traceback(before)}\n{describe_error(before)}\n\n{joint}\n\n{text}"
    return text.rstrip()


def _innermost_operator(trace: TracebackType | None, operators: list[Operator]) -> Operator | None:
    owners: list[tuple[Any, Operator]] = [(operator, operator) for operator in operators]
    # A sink's records go straight to its writer, so the writer's frame is the sink's.
    owners += [(operator.writer, operator) for operator in operators if hasattr(operator, "writer")]
    found = None
    while trace is not None:
        candidate: Any = trace.tb_frame.f_locals.get("self")
        found = next((operator for owned, operator in owners if owned is candidate), found)
        trace = trace.tb_next
    return found
