"""Operator state at another parallelism: split, given to all, copied, or redistributed by key group."""

import itertools
import json

import pytest

from penstock.checkpoint.manifest import NotRestorable, latest
from penstock.checkpoint.redistribution import reported_by, share_of
from penstock.common import Types
from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from penstock.state.key_groups import owner_of
from penstock.state.local_storage import LocalStorage
from penstock.state.shares import BROADCAST, GROUPED, SPLIT, UNION, Shares, in_group
from penstock.testing import JobHarness


def redistributed(shares, parallelism, max_parallelism=128):
    return [share_of(shares, subtask, parallelism, max_parallelism).elements for subtask in range(parallelism)]


class TestRedistribution:
    @pytest.mark.parametrize(
        ("parallelism", "expected"),
        [
            (3, [[b"1", b"2"], [b"3", b"4"], [b"5"]]),
            (2, [[b"1", b"2", b"3"], [b"4", b"5"]]),
            (1, [[b"1", b"2", b"3", b"4", b"5"]]),
            (6, [[b"1"], [b"2"], [b"3"], [b"4"], [b"5"], []]),
        ],
    )
    def test_a_split_state_is_divided_into_even_runs(self, parallelism, expected):
        assert (
            redistributed(Shares(mode=SPLIT, schema="", by_subtask=[[b"1", b"2", b"3"], [b"4", b"5"]]), parallelism)
            == expected
        )

    @pytest.mark.parametrize("parallelism", [1, 2, 3])
    def test_a_union_goes_to_all_subtasks(self, parallelism):
        shares = Shares(mode=UNION, schema="", by_subtask=[[b"1", b"2"], [b"3"]])
        assert redistributed(shares, parallelism) == [[b"1", b"2", b"3"]] * parallelism

    def test_a_broadcast_state_is_copied(self):
        assert redistributed(Shares(mode=BROADCAST, schema="", by_subtask=[[b"rule"]]), 3) == [[b"rule"]] * 3
        differing = Shares(mode=BROADCAST, schema="", by_subtask=[[b"a"], [b"b"]])
        assert redistributed(differing, 3) == [[b"a"], [b"b"], [b"a"]]

    def test_state_by_key_group_goes_to_the_owners(self):
        stored = [in_group(group, bytes([group])) for group in range(13)]
        for parallelism in (1, 2, 5, 13):
            shares = redistributed(
                Shares(mode=GROUPED, schema="", by_subtask=[stored[:6], stored[6:]]), parallelism, 13
            )
            for subtask, share in enumerate(shares):
                assert share == [stored[group] for group in range(13) if owner_of(group, parallelism, 13) == subtask]


def test_a_subtask_keeps_its_state_only_at_the_same_parallelism():
    """This also applies to a rescaled running job: subtask 0 of two had another share than subtask 0 of three."""
    shares = Shares(mode=SPLIT, schema="", by_subtask=[[b"1", b"2", b"3"], [b"4", b"5"]])
    assert reported_by(shares, 0, 2) == [b"1", b"2", b"3"]
    assert reported_by(shares, 0, 3) is None
    assert reported_by(shares, 2, 3) is None
    assert reported_by(Shares(mode=BROADCAST, schema="", by_subtask=[[b"rule"]]), 2, 3) == [b"rule"]


class Everything(MapFunction, CheckpointedFunction):
    """Keeps its numbers in a list, in a union list and as raw state, and the same rules in all subtasks."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.listed = store.get_list_state(ListStateDescriptor("listed", Types.LONG()))
        self.united = store.get_union_list_state(ListStateDescriptor("united", Types.LONG()))
        self.rules = store.get_broadcast_state(MapStateDescriptor("rules", str, int))
        self.raw = [json.loads(stream.read()) for stream in context.get_raw_operator_state_inputs()]
        self.subtask = context.get_runtime_context().get_index_of_this_subtask()
        self.given = list(self.listed), list(self.united), dict(self.rules.items()), list(self.raw)
        # Each subtask keeps its part of the union.
        subtasks = context.get_runtime_context().get_number_of_parallel_subtasks()
        self.own = [number for number in self.united if number % subtasks == self.subtask]

    def map(self, value):
        if value is None:
            return self.subtask, self.given
        self.listed.add(value)
        self.own.append(value)
        self.raw.append(value)
        return value

    def snapshot_state(self, context):
        self.united.update(self.own)
        self.rules.put("version", context.get_checkpoint_id())
        output = context.get_raw_operator_state_output()
        for number in self.raw:
            output.start_new_partition()
            output.write(json.dumps(number).encode())


def everything(parallelism, storage=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("numbers").rebalance().map(Everything()).uid("everything")
    return JobHarness(stream, parallelism=parallelism, storage=storage)


class TestRescaledFunctions:
    def test_a_function_rescaled_from_two_to_three_and_back_keeps_all_kinds_of_state(self):
        first = everything(2)
        first.push(1, 2, 3, 4, 5).epoch()
        assert first.operator_state("listed") == [[1, 3, 5], [2, 4]]

        three = everything(3, first.storage)
        assert [given for _, given in sorted(asked(three, 3))] == [
            ([1, 3], [1, 3, 5, 2, 4], {"version": 1}, [1, 3]),
            ([5, 2], [1, 3, 5, 2, 4], {"version": 1}, [5, 2]),
            ([4], [1, 3, 5, 2, 4], {"version": 1}, [4]),
        ]
        assert three.operator_state("united") == [[3], [1, 4], [5, 2]]
        assert three.operator_state("rules") == [{"version": 2}] * 3

        two = everything(2, first.storage)
        assert [given for _, given in sorted(asked(two, 2))] == [
            ([1, 3, 5], [3, 1, 4, 5, 2], {"version": 2}, [1, 3, 5]),
            ([2, 4], [3, 1, 4, 5, 2], {"version": 2}, [2, 4]),
        ]

    def test_a_function_at_the_same_parallelism_keeps_its_state(self):
        first = everything(2)
        first.push(1, 2, 3, 4, 5).epoch()
        same = everything(2, first.storage)
        assert [given[0] for _, given in sorted(asked(same, 2))] == [[1, 3, 5], [2, 4]]

    def test_some_subtasks_are_empty_if_there_are_more_subtasks_than_elements(self):
        first = everything(1)
        first.push(1, 2).epoch()
        many = everything(4, first.storage)
        assert [given[0] for _, given in sorted(asked(many, 4))] == [[1], [2], [], []]

    def test_rescaling_from_15_to_77_to_15_keeps_every_element_once(self):
        first = everything(15)
        first.push(*range(200)).epoch()
        for parallelism in (77, 15):
            job = everything(parallelism, first.storage)
            answers = sorted(asked(job, parallelism))
            assert sorted(itertools.chain(*(given[0] for _, given in answers))) == list(range(200))
            assert {len(given[0]) for _, given in answers} <= {200 // parallelism, 200 // parallelism + 1}
            assert all(sorted(given[1]) == list(range(200)) for _, given in answers)


def asked(job, subtasks):
    """Return the restored state of each subtask, by sending a None to each of them."""
    before = len(job.output)
    job.push(*[None] * subtasks).epoch()
    return job.output[before:]


class RawByKey(KeyedProcessFunction, CheckpointedFunction):
    """Keeps a sum for each key in a dict, written by key group."""

    def initialize_state(self, context):
        self.sums = {}
        for group, stream in context.get_raw_keyed_state_inputs():
            for key, total in json.loads(stream.read()):
                self.sums[key] = total
                assert group in range(128)

    def process_element(self, value, ctx):
        key, amount = value
        self.sums[key] = self.sums.get(key, 0) + amount
        yield key, self.sums[key]

    def snapshot_state(self, context):
        output = context.get_raw_keyed_operator_state_output()
        groups = {}
        for key, total in self.sums.items():
            groups.setdefault(output.key_group_of(key), []).append([key, total])
        assert set(groups) <= set(output.get_key_group_list())
        for group, sums in groups.items():
            output.start_new_key_group(group)
            output.write(json.dumps(sums).encode())


def raw_by_key(parallelism, storage=None, groups=13, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("amounts").key_by(lambda pair: pair[0]).process(RawByKey()).uid("sums")
    return JobHarness(stream, parallelism=parallelism, max_parallelism=groups, storage=storage, **options)


class TestRawKeyedState:
    def test_raw_keyed_state_follows_its_key_groups(self):
        """42 keys in 13 key groups with key × 1000; after each rescale, key × 500 is added."""
        job = raw_by_key(2)
        job.push(*[(key, key * 1000) for key in range(42)]).epoch()
        for parallelism, total in ((5, 1500), (3, 2000), (13, 2500)):
            job = raw_by_key(parallelism, job.storage)
            job.push(*[(key, key * 500) for key in range(42)]).epoch()
            assert sorted(job.output) == [(key, key * total) for key in range(42)]

    def test_another_number_of_key_groups_is_refused(self):
        job = raw_by_key(2)
        job.push((1, 1)).epoch()
        with pytest.raises(NotRestorable, match=r"'sums'.* in 13 key groups, but this program has 26"):
            raw_by_key(2, job.storage, groups=26)

    def test_a_savepoint_with_another_number_of_key_groups_is_refused_before_a_lineage_starts(self, tmp_path):
        job = raw_by_key(2)
        job.push((1, 1)).epoch()
        path = job.savepoint(tmp_path / "savepoints")
        storage = LocalStorage(tmp_path / "new")
        with pytest.raises(NotRestorable, match=r"savepoint in .*'sums'.* in 13 key groups, but this program uses 26"):
            raw_by_key(2, storage, groups=26, from_savepoint=path)
        assert latest(storage) is None

    def test_raw_keyed_state_without_a_key_is_refused(self):
        class NotKeyed(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                assert context.get_raw_keyed_state_inputs() == []

            def map(self, value):
                return value

            def snapshot_state(self, context):
                context.get_raw_keyed_operator_state_output()

        env = StreamExecutionEnvironment.get_execution_environment()
        with (
            JobHarness(env.from_collection([1]).map(NotKeyed())) as job,
            pytest.raises(Exception, match="raw keyed state, but its stream is not keyed"),
        ):
            job.epoch()

    @pytest.mark.parametrize(
        ("write", "message"),
        [
            (lambda output: output.write(b"x"), "without a key group"),
            (lambda output: output.start_new_key_group(13), "13 belongs to another subtask"),
            (lambda output: [output.start_new_key_group(3) for _ in range(2)], "3 was already written"),
        ],
    )
    def test_raw_keyed_state_must_be_written_once_per_key_group_of_the_subtask(self, write, message):
        class Writes(RawByKey):
            def snapshot_state(self, context):
                write(context.get_raw_keyed_operator_state_output())

        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([(1, 1)]).key_by(lambda pair: pair[0]).process(Writes()).uid("sums")
        with JobHarness(stream, max_parallelism=13) as job, pytest.raises(Exception, match=message):
            job.epoch()
