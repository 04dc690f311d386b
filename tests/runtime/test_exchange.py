"""The sending side of an edge: targets, buffers and barriers."""

from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.builder import build
from penstock.runtime.chain import ChainRun
from penstock.runtime.exchange import Hop, KeyExchange, Keying, Outlet
from penstock.runtime.failures import Party
from penstock.runtime.partitions import RoundRobinExchange, SingleExchange
from penstock.runtime.report import EdgeTotals
from penstock.runtime.rows import (
    BARRIER,
    DATA,
    PICKLED,
    Codec,
    channel_of,
    decode_barrier,
    decode_buffer,
    edge_of,
    producer_of,
    route_to,
)
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.state.key_groups import key_group_of, owner_of
from penstock.state.keys import encode_key
from penstock.state.serializers import serializer_for

CHANNEL = channel_of(4, 1)
SENDER = Party("words", "words-uid")


def hops(targets):
    return [Hop(10 + target, route_to(1, 10 + target)) for target in range(targets)]


def key_exchange(out, targets=3, groups=128, select=lambda value: value, codec=PICKLED, buffer_bytes=32 * 1024):
    owners = [owner_of(group, targets, groups) for group in range(groups)]
    selector = Party("key selector of count", "count-uid")
    return KeyExchange(
        Outlet(SENDER, CHANNEL, hops(targets), codec, buffer_bytes, out), Keying(select, None, owners, selector)
    )


def sent_to(out, target, codec=PICKLED):
    """Return the records of each buffer for a target."""
    rows = [row for row in out if row.target == target and row.kind == DATA]
    return [codec.decode_many(decode_buffer(row.payload).values) for row in rows]


def barriers(out):
    return {row.target: decode_barrier(row.payload) for row in out if row.kind == BARRIER}


class TestByKey:
    def test_128_key_groups_over_3_subtasks_are_split_into_0_to_42_43_to_85_and_86_to_127(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([]).key_by(lambda word: word).process(lambda word, ctx: [word])
        graph = build(env._graph, parallelism=3, max_parallelism=128)
        run = ChainRun(graph, graph.chains[0], None)
        words = [f"word {number}" for number in range(1000)]
        rows = list(Task(run, 0).over_records(TaskEpoch(1, False, None), [words]))
        ranges = [range(0, 43), range(43, 86), range(86, 128)]
        arrived = []
        for subtask, groups in enumerate(ranges):
            for records in sent_to(rows, subtask):
                arrived += records
                assert {key_group_of(encode_key(word), 128) for word in records} <= set(groups)
        assert sorted(arrived) == sorted(words)

    def test_the_encoded_key_travels_with_its_record_and_the_selector_runs_once(self):
        selected = []

        def last_letter(word):
            selected.append(word)
            return word[-1]

        out = []
        exchange = key_exchange(out, targets=1, select=last_letter)
        exchange.process_many(["one", "two", "free"])
        exchange.close(1, False)
        buffer = decode_buffer(out[0].payload)
        assert buffer.keys == [encode_key("e"), encode_key("o"), encode_key("e")]
        assert PICKLED.decode_many(buffer.values) == ["one", "two", "free"]
        assert selected == ["one", "two", "free"]

    def test_processing_records_one_by_one_sends_the_same_rows_as_processing_many(self):
        one_by_one, at_once = [], []
        slow, fast = key_exchange(one_by_one), key_exchange(at_once)
        for number in range(2000):
            slow.process(number)
        fast.process_many(list(range(2000)))
        slow.close(1, False)
        fast.close(1, False)
        assert one_by_one == at_once


class TestBuffers:
    def test_a_target_receives_records_in_order_and_buffers_without_gaps(self):
        out = []
        exchange = key_exchange(out, buffer_bytes=200)
        exchange.process_many(list(range(3000)))
        exchange.close(7, False)
        for target in (10, 11, 12):
            rows = [row for row in out if row.target == target]
            buffers = sent_to(out, target)
            assert [row.seq for row in rows] == [*range(len(buffers)), len(buffers)]
            assert [row.kind for row in rows] == [DATA] * len(buffers) + [BARRIER]
            assert len(buffers) > 5
            flat = [record for buffer in buffers for record in buffer]
            assert flat == sorted(flat)
        everything = [record for target in (10, 11, 12) for buffer in sent_to(out, target) for record in buffer]
        assert sorted(everything) == list(range(3000))

    def test_barriers_report_each_channel_and_totals_all_of_them(self):
        out = []
        exchange = key_exchange(out, buffer_bytes=200)
        exchange.process_many(list(range(3000)))
        totals = exchange.close(7, False)
        for target, barrier in barriers(out).items():
            buffers = sent_to(out, target)
            assert (barrier.epoch, barrier.buffers, barrier.failed) == (7, len(buffers), False)
            assert barrier.records == sum(map(len, buffers))
        closed = list(barriers(out).values())
        assert totals == EdgeTotals(
            edge=edge_of(CHANNEL),
            channels=3,
            buffers=sum(barrier.buffers for barrier in closed),
            records=3000,
            fingerprint=totals.fingerprint,
        )

    def test_a_target_without_records_receives_a_barrier(self):
        out = []
        key_exchange(out).close(3, False)
        closed = {
            target: (barrier.epoch, barrier.buffers, barrier.records) for target, barrier in barriers(out).items()
        }
        assert closed == {10: (3, 0, 0), 11: (3, 0, 0), 12: (3, 0, 0)}
        assert len(out) == 3

    def test_buffers_approach_the_configured_size_for_any_record_size(self):
        for size in (10, 1000):
            out = []
            exchange = key_exchange(out, targets=1, buffer_bytes=8000)
            exchange.process_many([f"{number:0{size}d}" for number in range(3000)])
            exchange.close(1, False)
            sizes = [len(row.payload) for row in out if row.kind == DATA]
            # All except the first, which was sent before a size was known, and the last, which holds the remainder.
            assert sizes[1:-1]
            assert all(6000 <= each <= 9000 for each in sizes[1:-1])

    def test_a_record_larger_than_a_buffer_is_sent_alone(self):
        out = []
        exchange = key_exchange(out, targets=1, buffer_bytes=100)
        exchange.process_many(["x" * 10_000] * 300)
        exchange.close(1, False)
        assert [len(buffer) for buffer in sent_to(out, 10)] == [256] + [1] * 44

    def test_a_retried_task_sends_the_same_rows(self):
        first, second = [], []
        for out in (first, second):
            exchange = key_exchange(out, buffer_bytes=300)
            exchange.process_many([f"k{number % 50}" for number in range(5000)])
            exchange.close(1, False)
        assert first == second

    def test_records_of_a_declared_type_travel_in_its_encoding(self):
        serializer = serializer_for(int)
        codec = Codec(serializer.encode_many, serializer.decode_many, lambda value: value)
        out = []
        exchange = key_exchange(out, targets=1, codec=codec)
        exchange.process_many([1, 2, 3])
        exchange.close(1, False)
        assert decode_buffer(out[0].payload).values == serializer.encode_many([1, 2, 3])

    def test_a_failed_producer_drops_its_records_and_closes_every_channel_as_failed(self):
        out = []
        exchange = key_exchange(out)
        exchange.process_many(list(range(10)))
        exchange.close(5, True)
        assert [row.kind for row in out] == [BARRIER] * 3
        assert all(barrier.failed and barrier.records == 0 for barrier in barriers(out).values())


class TestRebalance:
    def exchange(self, out, start):
        return RoundRobinExchange(Outlet(SENDER, CHANNEL, hops(3), PICKLED, 32 * 1024, out), range(3), start)

    def test_records_rotate_over_targets_starting_at_the_producers_index(self):
        out = []
        exchange = self.exchange(out, start=4)
        exchange.process_many(["a", "b", "c", "d", "e"])
        exchange.close(1, False)
        assert [sent_to(out, target) for target in (10, 11, 12)] == [[["c"]], [["a", "d"]], [["b", "e"]]]

    def test_a_rebalanced_record_travels_without_a_key(self):
        out = []
        exchange = self.exchange(out, start=0)
        exchange.process_many(["a"])
        exchange.close(1, False)
        assert decode_buffer(out[0].payload).keys is None


class TestForward:
    def test_forward_sends_everything_to_the_subtask_with_the_same_index_and_closes_all_channels(self):
        out = []
        exchange = SingleExchange(Outlet(SENDER, CHANNEL, hops(3), PICKLED, 32 * 1024, out), 2)
        exchange.process_many(list(range(600)))
        exchange.close(1, False)
        assert [sum(map(len, sent_to(out, target))) for target in (10, 11, 12)] == [0, 0, 600]
        assert {target: barrier.records for target, barrier in barriers(out).items()} == {10: 0, 11: 0, 12: 600}


def test_a_channel_identifies_its_edge_and_its_producer():
    for edge, producer in [(0, 0), (3, 7), (2**31 - 1, 2**32 - 1)]:
        channel = channel_of(edge, producer)
        assert (edge_of(channel), producer_of(channel)) == (edge, producer)


def test_classes_that_cannot_be_imported_travel_with_their_records():
    class Event:
        def __init__(self, number):
            self.number = number

    back = PICKLED.decode_many(PICKLED.encode_many([Event(1), Event(2)]))
    assert [event.number for event in back] == [1, 2]
