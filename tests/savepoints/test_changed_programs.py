"""A job upgraded while stopped: state is restored by uid, and state without an operator is reported."""

import pytest
from savepoint_jobs import Sum, by_first, environment, numbers, sums

from penstock.checkpoint.manifest import NotRestorable
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.savepoint.restoring import OtherJob
from penstock.testing import JobHarness


def two_sums(first, second, **functions):
    """Sum pairs by key in two consecutive operators with these uids."""
    stream = by_first(numbers(environment())).process(functions.get(first) or Sum()).uid(first)
    return by_first(stream).process(functions.get(second) or Sum()).uid(second)


@pytest.fixture
def path(tmp_path):
    """A savepoint in which `one` has the sums of the records, and `two` the sums of those sums."""
    job = JobHarness(two_sums("one", "two"), parallelism=2)
    job.push(("a", 1), ("b", 10)).epoch()
    job.push(("a", 1), ("b", 10)).epoch()
    assert job.states("sum", "one") == {"a": 2, "b": 20}
    assert job.states("sum", "two") == {"a": 3, "b": 30}
    return job.stop_with_savepoint(tmp_path)


class TestAnOperator:
    def test_an_added_operator_starts_empty_and_the_others_keep_their_state(self, path):
        counted = by_first(numbers(environment())).process(Sum("added")).uid("new")
        stream = by_first(by_first(counted.map(lambda pair: (pair[0], 1))).process(Sum()).uid("one"))
        with JobHarness(stream.process(Sum()).uid("two"), parallelism=3, from_savepoint=path) as job:
            assert job.states("added") == {}
            for _ in range(30):
                job.push(("a", 5)).epoch()
                job.crash()
            assert job.states("added") == {"a": 150}
            assert job.states("sum", "one") == {"a": 32, "b": 20}

    def test_a_removed_operator_is_reported_with_its_states(self, path):
        with pytest.raises(NotRestorable, match=r"'Keyed Process' \(uid 'two'\) with its 'sum'") as raised:
            JobHarness(sums("one"), from_savepoint=path)
        assert "--allow-non-restored-state" in str(raised.value)
        assert not isinstance(raised.value, OtherJob)

    def test_a_removed_operator_is_dropped_if_the_user_allows_it(self, path):
        with JobHarness(sums("one"), from_savepoint=path, allow_non_restored_state=True) as job:
            job.push(("a", 1)).epoch()
            assert job.states("sum") == {"a": 3, "b": 20}

    def test_swapped_operators_keep_their_own_state(self, path):
        with JobHarness(two_sums("two", "one"), parallelism=2, from_savepoint=path) as job:
            job.push(("a", 1)).epoch()
            assert job.states("sum", "two") == {"a": 4, "b": 30}
            assert job.states("sum", "one") == {"a": 6, "b": 20}

    def test_a_renamed_state_starts_empty(self, path):
        with JobHarness(two_sums("one", "two", two=Sum("other")), from_savepoint=path) as job:
            job.push(("a", 1)).epoch()
            assert job.states("other") == {"a": 3}

    def test_a_state_with_an_incompatible_type_is_refused(self, path):
        class Words(KeyedProcessFunction):
            def open(self, runtime_context):
                self.words = runtime_context.get_state(ValueStateDescriptor("sum", str))

            def process_element(self, value, ctx):
                self.words.update(str(value))

        with (
            JobHarness(two_sums("one", "two", two=Words()), from_savepoint=path) as job,
            pytest.raises(PenstockError, match=r"'sum'.*uid 'two'"),
        ):
            job.push(("a", 1)).epoch()

    def test_a_changed_number_of_key_groups_is_refused_with_the_reason(self, path):
        with pytest.raises(NotRestorable, match=r"'one'.*in 128 key groups, but this program uses 64") as raised:
            JobHarness(two_sums("one", "two"), max_parallelism=64, from_savepoint=path)
        assert "set_max_parallelism(128)" in str(raised.value)

    def test_an_operator_that_is_no_longer_keyed_is_refused(self, path):
        stream = by_first(numbers(environment())).process(Sum()).uid("one").map(lambda pair: pair).uid("two")
        with pytest.raises(NotRestorable, match=r"keyed state \('sum'\).*'two'.*is not keyed"):
            JobHarness(stream, from_savepoint=path)

    def test_a_savepoint_without_any_matching_operator_is_refused(self, path):
        with pytest.raises(OtherJob, match=r"Nothing in .* matches.*job 'harness'.*'numbers', 'one', 'two'.*'x', 'y'"):
            JobHarness(sums("x", source="y"), from_savepoint=path)


class TestSources:
    """A program with three sources and a sum for each."""

    def program(self, *uids):
        env = environment()
        streams = [numbers(env, uid).map(lambda pair, uid=uid: (f"{uid} {pair[0]}", pair[1])) for uid in uids]
        union = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        return by_first(union).process(Sum()).uid("sum")

    def saved(self, tmp_path):
        job = JobHarness(self.program("x", "y", "z"))
        job.push(("k", 1), ("k", 2), source="x").push(("k", 10), source="y").epoch()
        return job.stop_with_savepoint(tmp_path)

    def test_sources_keep_their_positions_when_others_are_added_or_reordered(self, tmp_path):
        with JobHarness(self.program("new", "z", "y", "x"), from_savepoint=self.saved(tmp_path)) as job:
            assert job._driver.last.records == {"x": 2, "y": 1, "z": 0}
            job.push(("k", 100), source="x").push(("k", 7), source="new").epoch()
            assert job.states("sum") == {"x k": 103, "y k": 10, "new k": 7}

    def test_removed_sources_are_reported_unless_nothing_was_read(self, tmp_path):
        path = self.saved(tmp_path)
        with pytest.raises(NotRestorable, match=r"source 'Collection' \(uid 'y'\) with its position after 1 records"):
            JobHarness(self.program("x", "z"), from_savepoint=path)
        with JobHarness(self.program("x", "z"), from_savepoint=path, allow_non_restored_state=True) as job:
            assert job._driver.last.records == {"x": 2, "z": 0}
        with JobHarness(self.program("x", "y"), from_savepoint=path) as job:
            assert job._driver.last.records == {"x": 2, "y": 1}


class TestDerivedUids:
    def program(self):
        return by_first(environment().from_collection([])).process(Sum())

    def test_making_a_savepoint_warns_about_derived_uids(self, tmp_path):
        with JobHarness(self.program()) as job:
            job.push(("a", 1)).epoch()
            with pytest.warns(
                UserWarning, match=r"without a uid: 'Keyed Process' \(.*\), 'Collection'.*does not change"
            ):
                path = job.savepoint(tmp_path)
        with JobHarness(self.program(), from_savepoint=path) as job:
            assert job.states("sum") == {"a": 1}

    def test_making_a_savepoint_does_not_warn_about_assigned_uids(self, tmp_path, recwarn):
        with JobHarness(sums()) as job:
            job.push(("a", 1)).epoch()
            job.savepoint(tmp_path)
        assert not recwarn

    def test_a_missing_operator_is_reported_with_its_derived_uid(self, tmp_path):
        with JobHarness(self.program()) as job:
            job.push(("a", 1)).epoch()
            with pytest.warns(UserWarning, match="without a uid"):
                path = job.savepoint(tmp_path)
        stream = by_first(environment().from_collection([]).map(lambda pair: pair)).process(Sum())
        with pytest.raises(NotRestorable, match="derived from the program's structure"):
            JobHarness(stream, from_savepoint=path)
