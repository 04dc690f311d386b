"""When two failures count as the same error."""

import pytest

from penstock.driver.error_identity import error_identity
from penstock.errors import PenstockError, SourceLocation


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("<object at 0x7f4fc9dbaa50>", "<object at 0x7f00deadbeef>"),
        ("refused (after 0ms in state CONNECT)", "refused (after 12ms in state CONNECT)"),
        ("Connect to ipv4#127.0.0.1:9092 failed", "Connect to ipv6#[::1]:9092 failed"),
        ("at 2026-11-16 15:14:02.113 it failed", "at 2026-11-16T15:15:00Z it failed"),
        ("[15:14:02] no answer", "[15:15:09] no answer"),
        ("no answer within 30.1 s", "no answer within 29.9 s"),
        ("Lost task 0.0 in stage 12.0 (TID 34)", "Lost task 0.0 in stage 19.0 (TID 61)"),
        ("in subtask 0 of epoch 1", "in subtask 3 of epoch 1"),
        ("query 0a0e9c54-2c7c-4bb8-9b3e-0d5f4c1f2b11", "query 9f1e9c54-2c7c-4bb8-9b3e-0d5f4c1f2b00"),
        ("/tmp/penstock-ab12cd/spark is gone", "/tmp/penstock-zz99aa/spark is gone"),
        ("worker pid 4711 died", "worker pid 4712 died"),
        ("An error occurred while calling o52.collect", "An error occurred while calling o9952.collect"),
        ("Couldn't find value#12L in [key#7]", "Couldn't find value#98L in [key#91]"),
    ],
)
def test_volatile_details_do_not_change_the_identity(first: str, again: str) -> None:
    assert error_identity(OSError(first)) == error_identity(OSError(again))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("a.parquet: INT96 is not read", "b.parquet: INT96 is not read"),
        ("localhost:9092 refused", "localhost:9093 refused"),
        ("the record 5 has no field 'id'", "the record 6 has no field 'id'"),
        ("column 'deadbeef' is missing", "column 'cafebabe' is missing"),
        ("topic 'a' does not exist", "topic 'b' does not exist"),
        ("expected 3 columns", "expected 4 columns"),
    ],
)
def test_different_messages_are_different_errors(first: str, other: str) -> None:
    assert error_identity(OSError(first)) != error_identity(OSError(other))


def test_different_classes_and_locations_are_different_errors() -> None:
    here, there = SourceLocation("job.py", 1, "f"), SourceLocation("job.py", 2, "f")
    errors = [OSError("x"), ValueError("x"), *(PenstockError("x", locations=(place,)) for place in (here, there))]
    assert len({error_identity(error) for error in errors}) == 4


def test_the_raising_line_is_part_of_the_identity() -> None:
    def failing(number: int) -> OSError:
        try:
            if number:
                raise OSError("x")
            raise OSError("x")
        except OSError as error:
            return error

    assert error_identity(failing(0)) == error_identity(failing(0)) != error_identity(failing(1))
