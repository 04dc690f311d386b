"""The min_by, max_by and ..._with_state shortcuts of keyed streams."""

from typing import Any

import pytest

from penstock.common import Row
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def keyed(records: list[Any], key: Any = lambda record: record[0]) -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection(records).key_by(key)


def run(stream: Any, per_epoch: int | None = None) -> list[Any]:
    with JobHarness(stream) as job:
        return job.run(per_epoch)


class TestMinByAndMaxBy:
    RECORDS = [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "z"), ("a", 2, "w"), ("b", 9, "v")]

    def test_min_by_and_max_by_return_the_complete_first_record(self) -> None:
        least = [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "y"), ("a", 1, "y"), ("b", 9, "v")]
        assert run(keyed(self.RECORDS).min_by(1)) == least
        assert run(keyed(self.RECORDS).max_by(1)) == [("a", 3, "x")] * 4 + [("b", 9, "v")]

    def test_min_by_and_max_by_accept_row_fields_and_plain_values(self) -> None:
        rows = [Row(k=1, n=5), Row(k=1, n=4)]
        assert run(keyed(rows).min_by("n")) == rows
        assert run(keyed([3, 1, 2], lambda n: 0).max_by()) == [3, 3, 3]

    def test_min_by_refuses_records_without_fields(self) -> None:
        with pytest.raises(PenstockError, match=r"min_by\('n'\) needs tuples, lists or Rows"):
            run(keyed([{"n": 1}, {"n": 2}], lambda record: 0).min_by("n"))


class TestWithState:
    # The running count per key from Flink's introductory example, over (2,2) (4,1) (5,4).
    def test_map_with_state_counts_per_key(self) -> None:
        def count(value: tuple[int, int], seen: int | None) -> tuple[tuple[int, int], int]:
            return ((value[0], seen), seen + value[1]) if seen is not None else ((value[0], 0), value[1])

        assert run(keyed([(2, 2), (4, 1), (5, 4)]).map_with_state(count, int)) == [(2, 0), (4, 0), (5, 0)]
        assert run(keyed([(2, 2), (2, 3), (2, 1)]).map_with_state(count, int), 1) == [(2, 0), (2, 2), (2, 5)]

    def test_returning_none_as_the_new_state_clears_it(self) -> None:
        def toggle(value: Any, on: bool | None) -> tuple[Any, bool | None]:
            return on, None if on else True

        assert run(keyed(["aa"] * 4).map_with_state(toggle, bool), 1) == [None, True, None, True]

    def test_flat_map_with_state_emits_any_number_of_results(self) -> None:
        def repeat(value: str, seen: int | None) -> tuple[list[str] | None, int]:
            return [value] * seen if seen else None, (seen or 0) + 1

        assert run(keyed(["a", "a", "a"]).flat_map_with_state(repeat, int)) == ["a", "a", "a"]

    def test_filter_with_state_keeps_the_record(self) -> None:
        def first_only(value: str, seen: bool | None) -> tuple[bool, bool]:
            return not seen, True

        assert run(keyed(["a", "b", "a"]).filter_with_state(first_only, bool), 1) == ["a", "b"]

    def test_the_error_for_a_function_without_a_pair_describes_the_pair(self) -> None:
        with pytest.raises(PenstockError, match=r"map_with_state needs\s+\(result, new state\)"):
            run(keyed(["a"]).map_with_state(lambda value, state: value, str))

    def test_a_state_type_without_a_serializer_is_refused_at_declaration(self) -> None:
        with pytest.raises(PenstockError, match="'_state'"):
            keyed(["a"]).map_with_state(lambda value, state: (value, state), object)
