"""Describes an exception in a task for the user: the operator, and the frames of the user's code."""

from __future__ import annotations

import reprlib
import traceback
from types import TracebackType
from typing import Any, NamedTuple

from penstock.common.source_locations import is_ours, user_locations
from penstock.errors import PenstockError, SourceLocation
from penstock.runtime.hints import hint
from penstock.runtime.inbox import Misaligned
from penstock.runtime.operators import Operator
from penstock.runtime.rows import Failure
from penstock.state.engines.base import EngineError
from penstock.state.files import CorruptFile
from penstock.state.replica import StaleAttempt
from penstock.state.storage import StorageError

_NOT_THE_USERS = (Misaligned, EngineError, StorageError, CorruptFile, StaleAttempt)
"""Errors that running the epoch again can cure. All others recur, because they follow from program and input."""


class Party(NamedTuple):
    """The operator, source or selector named in a failure."""

    name: str
    uid: str
    is_source: bool = False
    location: SourceLocation | None = None
    """The line of the user's program that declared it."""


def party_of(operator: Operator) -> Party:
    return Party(operator.name, operator.uid, location=operator.location)


class Blamed(Exception):
    """Wraps, as its cause, an error of a party other than the operator with the innermost frame."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self.party = party


def describe_failure(error: BaseException, operators: list[Operator], otherwise: Party, subtask: int) -> Failure:
    """Describe an error, blaming the operator with the innermost frame, or `otherwise` if no operator has one."""
    if isinstance(error, Blamed) and error.__cause__ is not None:
        party, error = error.party, error.__cause__
    else:
        operator = _innermost_operator(error.__traceback__, operators)
        party = otherwise if operator is None else party_of(operator)
    from_user = not isinstance(error, _NOT_THE_USERS)
    locations = user_locations(error.__traceback__) or ((party.location,) if party.location is not None else ())
    record = _record(error.__traceback__)
    if isinstance(error, PenstockError):
        headline, fix = error.headline(), error.fix
    else:
        headline, fix = describe_error(error) + _reason(error), _fix(error, locations, record)
    return Failure(
        operator=party.name,
        uid=party.uid,
        subtask=subtask,
        error=describe_error(error),
        traceback=user_traceback(error),
        from_user=from_user,
        headline=headline,
        fix=fix,
        record=record,
        locations=locations,
        retryable=error.retryable if isinstance(error, PenstockError) else True,
        is_source=party is otherwise and otherwise.is_source,
    )


def describe_error(error: BaseException) -> str:
    # Our own messages are self-explanatory; for the user's errors the class matters too.
    if isinstance(error, PenstockError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def user_traceback(error: BaseException) -> str:
    """Return Python's traceback with only the frames outside Penstock; empty if every frame is ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)]
    text = "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)]) if frames else ""
    if isinstance(error, PenstockError):
        return text.rstrip()
    before = _before(error)
    if before is not None:
        joint = "The above exception was the direct cause of the following exception:"
        if error.__cause__ is None:
            joint = "During handling of the above exception, another exception occurred:"
        text = f"{user_traceback(before)}\n{describe_error(before)}\n\n{joint}\n\n{text}"
    return text.rstrip()


def _before(error: BaseException) -> BaseException | None:
    """Return the exception that this one was raised from, or while handling."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _reason(error: BaseException) -> str:
    before = _before(error)
    if before is None:
        return ""
    locations = user_locations(before.__traceback__)
    where = f", in {locations[0].function}, line {locations[0].line}" if locations else ""
    return f"\nafter {describe_error(before)}{where}"


def _innermost_operator(trace: TracebackType | None, operators: list[Operator]) -> Operator | None:
    owners: list[tuple[Any, Operator]] = [(operator, operator) for operator in operators]
    # A sink passes records directly to its writer, so the writer's frame belongs to the sink.
    owners += [(operator.writer, operator) for operator in operators if hasattr(operator, "writer")]
    found = None
    while trace is not None:
        candidate: Any = trace.tb_frame.f_locals.get("self")
        found = next((operator for owned, operator in owners if owned is candidate), found)
        trace = trace.tb_next
    return found


def _record(trace: TracebackType | None) -> str:
    """Return the current record: the input of the innermost operator or exchange, from its frame."""
    found: list[Any] = []
    while trace is not None:
        frame = trace.tb_frame
        code = frame.f_code
        if code.co_name in _HANDLERS and is_ours(code.co_filename) and "value" in frame.f_locals:
            found = [frame.f_locals["value"]]
        trace = trace.tb_next
    return " ".join(_brief.repr(found[0]).split()) if found else ""


def _fix(error: BaseException, locations: tuple[SourceLocation, ...], record: str) -> str:
    function = locations[0].function if locations else "the function"
    hinted = hint(error, function)
    if hinted:
        return hinted
    if not record:
        return f"Change {function} to handle this case without raising the error."
    return f"Change {function} to handle such a record, or drop such records upstream with filter(...)."


_HANDLERS = frozenset(
    {
        "process",
        "process_shared",
        "process_second",
        "_process_quietly",
        "process_keyed",
        "process_timed",
        "_process_sliding",
        "process_many",
        "write",
        "emit_results",
    }
)
"""Our methods that hold a record in their local variable `value`."""
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120
"""Long enough to recognize a record, short enough for one line."""
