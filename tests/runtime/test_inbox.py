"""The receiving side: alignment rejects lost, duplicated, misplaced and stale rows, and the order never varies."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.runtime.exchange import Hop, KeyExchange, Keying, Outlet
from penstock.runtime.failures import Party
from penstock.runtime.inbox import Inbox, Misaligned, UpstreamFailed
from penstock.runtime.partitions import RoundRobinExchange
from penstock.runtime.report import summed
from penstock.runtime.rows import BARRIER, DATA, PICKLED, channel_of, route_to
from penstock.state.key_groups import owner_of

EPOCH = 5
TARGETS = 2
SENDER = Party("numbers", "numbers-uid")


def rows_of(producers, epoch=EPOCH, records_per_buffer=3, keyed=True, totals=None):
    """Return the rows that these producers, lists of records, send on one edge to two targets in an epoch.

    What each producer reports about its channels is appended to `totals`.
    """
    out = []
    totals = [] if totals is None else totals
    hops = [Hop(target, route_to(1, target)) for target in range(TARGETS)]
    for number, records in enumerate(producers):
        channel = channel_of(0, number)
        if keyed:
            owners = [owner_of(group, TARGETS, 16) for group in range(16)]
            keying = Keying(lambda value: value, None, owners, SENDER)
            exchange = KeyExchange(Outlet(SENDER, channel, hops, PICKLED, 1, out), keying)
        else:
            exchange = RoundRobinExchange(Outlet(SENDER, channel, hops, PICKLED, 1, out), range(TARGETS), number)
        # With a target size of 1 byte, every buffer after the first holds one record.
        exchange._limit = records_per_buffer
        exchange.process_many(records)
        totals.append(exchange.close(epoch, False))
    return out


def receive(rows, target, producers, budget=1 << 20, totals=None):
    """Return the (channel, records) that a task for `target` processes, or raise Misaligned.

    What the task reports about its channels is appended to `totals`.
    """
    totals = [] if totals is None else totals
    inbox = Inbox(EPOCH, [channel_of(0, number) for number in range(producers)], budget)
    try:
        for row in rows:
            if row.target != target:
                continue
            if row.kind == DATA:
                inbox.add_buffer(row)
            else:
                inbox.add_barrier(row)
        inbox.align()
        received = []
        for channel, buffer in inbox.buffers():
            values = PICKLED.decode_many(buffer.values)
            received.append((channel, values))
            inbox.count(channel, len(values))
        totals += inbox.totals(route_to(1, target))
        return received
    finally:
        inbox.close()


def receive_all(rows, producers, budget=1 << 20):
    return [receive(rows, target, producers, budget) for target in range(TARGETS)]


def assert_rejected(rows, producers):
    with pytest.raises(Misaligned):
        receive_all(rows, producers)


inputs = st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=3)


class TestAlignment:
    @given(inputs, st.booleans())
    def test_all_sent_records_are_processed(self, producers, keyed):
        received = receive_all(rows_of(producers, keyed=keyed), len(producers))
        for number, records in enumerate(producers):
            arrived = [
                record
                for of_target in received
                for channel, values in of_target
                if channel == channel_of(0, number)
                for record in values
            ]
            assert sorted(arrived) == sorted(records)

    @given(inputs, st.data())
    def test_a_lost_row_is_rejected(self, producers, data):
        rows = rows_of(producers)
        del rows[data.draw(st.integers(0, len(rows) - 1))]
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_a_duplicated_row_is_rejected(self, producers, data):
        rows = rows_of(producers)
        rows.insert(data.draw(st.integers(0, len(rows))), data.draw(st.sampled_from(rows)))
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_a_row_on_another_channel_is_rejected(self, producers, data):
        assume(len(producers) > 1)
        rows = rows_of(producers)
        place = data.draw(st.integers(0, len(rows) - 1))
        others = [channel_of(0, n) for n in range(len(producers)) if channel_of(0, n) != rows[place].channel]
        rows[place] = rows[place]._replace(channel=data.draw(st.sampled_from(others)))
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_a_row_at_another_target_is_rejected(self, producers, data):
        rows = rows_of(producers)
        place = data.draw(st.integers(0, len(rows) - 1))
        rows[place] = rows[place]._replace(target=1 - rows[place].target)
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_a_buffer_with_another_sequence_number_is_rejected(self, producers, data):
        rows = rows_of(producers)
        buffers = [place for place, row in enumerate(rows) if row.kind == DATA]
        assume(buffers)
        place = data.draw(st.sampled_from(buffers))
        seq = data.draw(st.integers(0, 20).filter(lambda number: number != rows[place].seq))
        rows[place] = rows[place]._replace(seq=seq)
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_swapped_buffers_are_rejected(self, producers, data):
        rows = rows_of(producers)
        buffers = [place for place, row in enumerate(rows) if row.kind == DATA]
        assume(len(buffers) > 1)
        one, other = data.draw(st.lists(st.sampled_from(buffers), min_size=2, max_size=2, unique=True))
        assume(rows[one].payload != rows[other].payload)
        payloads = rows[one].payload, rows[other].payload
        rows[other], rows[one] = (
            rows[other]._replace(payload=payloads[0]),
            rows[one]._replace(payload=payloads[1]),
        )
        assert_rejected(rows, len(producers))

    @given(inputs, inputs, st.data())
    def test_a_row_of_another_epoch_is_rejected(self, producers, before, data):
        rows = rows_of(producers)
        stale = data.draw(st.sampled_from(rows_of(before, epoch=EPOCH - 1)))
        same_place = [
            place
            for place, row in enumerate(rows)
            if (row.target, row.channel, row.seq, row.kind) == (stale.target, stale.channel, stale.seq, stale.kind)
        ]
        if same_place and data.draw(st.booleans()):
            # A buffer with the same content is a valid replacement.
            assume(rows[same_place[0]].payload != stale.payload)
            rows[same_place[0]] = stale
        else:
            rows.insert(0, stale)
        assert_rejected(rows, len(producers))

    @given(inputs, st.data())
    def test_a_flipped_bit_is_rejected(self, producers, data):
        rows = rows_of(producers)
        buffers = [place for place, row in enumerate(rows) if row.kind == DATA]
        assume(buffers)
        place = data.draw(st.sampled_from(buffers))
        payload = bytearray(rows[place].payload)
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        rows[place] = rows[place]._replace(payload=bytes(payload))
        assert_rejected(rows, len(producers))

    def test_buffers_are_checked_before_any_is_processed(self):
        first, *others = (row for row in rows_of([[1, 2, 3, 4, 5, 6]], keyed=False) if row.target == 0)
        inbox = Inbox(EPOCH, [channel_of(0, 0)])
        inbox.add_buffer(first._replace(payload=first.payload[:-1] + b"?"))
        for row in others:
            (inbox.add_buffer if row.kind == DATA else inbox.add_barrier)(row)
        with pytest.raises(Misaligned, match="the buffers of channel 0x0 fail their checksum"):
            inbox.align()


class TestMessages:
    def inbox(self, rows, expected=(0,)):
        inbox = Inbox(EPOCH, [channel_of(0, number) for number in expected])
        for row in rows:
            (inbox.add_buffer if row.kind == DATA else inbox.add_barrier)(row)
        return inbox

    def rows(self):
        return [row for row in rows_of([[1, 2, 3, 4, 5, 6, 7, 8]], keyed=False) if row.target == 0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda rows: rows[1:], "Epoch 5: buffer 1 of channel 0x0 arrived after a gap"),
            (lambda rows: [rows[1], *rows], "Epoch 5: buffer 1 of channel 0x0 arrived twice"),
            (lambda rows: [row for row in rows if row.kind == DATA], "Epoch 5: no barrier from channels .*0x0"),
            (
                lambda rows: [row for row in rows if row.kind == BARRIER],
                "closed after 2 buffers, but a different number",
            ),
            (lambda rows: [*rows[:-1], rows_of([[]], epoch=4)[0]], "A barrier of epoch 4 arrived in epoch 5"),
        ],
        ids=["lost", "doubled", "no barrier", "only the barrier", "old barrier"],
    )
    def test_the_error_names_the_epoch_the_channel_and_the_cause(self, change, message):
        with pytest.raises(Misaligned, match=message):
            self.inbox(change(self.rows())).align()

    def test_a_channel_closed_twice_is_named(self):
        rows = self.rows()
        with pytest.raises(Misaligned, match="Channel 0x0 was closed twice in epoch 5"):
            self.inbox([*rows, rows[-1]])

    def test_an_expected_channel_without_a_barrier_is_named(self):
        with pytest.raises(Misaligned, match=r"no barrier from channels \['0x1'\]"):
            self.inbox(self.rows(), expected=(0, 1)).align()

    def test_an_unclosed_channel_of_a_source_is_named(self):
        inbox = Inbox(EPOCH, [])
        inbox.add_buffer(self.rows()[0])
        with pytest.raises(Misaligned, match=r"no barrier closes channels \['0x0'\]"):
            inbox.align()

    def test_a_wrong_record_count_is_named(self):
        inbox = self.inbox(self.rows())
        inbox.align()
        inbox.count(channel_of(0, 0), 3)
        with pytest.raises(Misaligned, match="channel 0x0 sent 4 records, 3 arrived"):
            inbox.totals(route_to(1, 0))


class TestTotals:
    @given(inputs, st.booleans())
    def test_both_ends_report_the_same_totals(self, producers, keyed):
        sent, received = [], []
        rows = rows_of(producers, keyed=keyed, totals=sent)
        for target in range(TARGETS):
            receive(rows, target, len(producers), totals=received)
        assert summed(sent) == summed(received)

    @given(inputs, inputs, st.data())
    def test_a_channel_of_another_attempt_changes_the_totals(self, producers, others, data):
        """A task reads the whole channel of a producer that ran twice, and its report is that of the other attempt."""
        number = data.draw(st.integers(0, len(producers) - 1))
        again = [*producers]
        again[number] = data.draw(st.sampled_from(others))
        sent, received = [], []
        rows, rows_again = rows_of(producers, totals=sent), rows_of(again)
        stale = data.draw(st.integers(0, TARGETS - 1))
        changed = [row for row in rows_again if row.target == stale]
        assume([tuple(row) for row in rows if row.target == stale] != [tuple(row) for row in changed])
        for target in range(TARGETS):
            receive(changed if target == stale else rows, target, len(producers), totals=received)
        assert summed(sent) != summed(received)


class TestOrder:
    @given(inputs, st.randoms(use_true_random=False), st.booleans())
    def test_the_order_of_arrival_does_not_matter(self, producers, random, keyed):
        rows = rows_of(producers, keyed=keyed)
        shuffled = list(rows)
        random.shuffle(shuffled)
        assert receive_all(shuffled, len(producers)) == receive_all(rows, len(producers))

    def test_channels_advance_together_and_each_keeps_its_order(self):
        rows = rows_of([list(range(10)), list(range(100, 106))], keyed=False, records_per_buffer=1)
        channels = [channel_of(0, 0), channel_of(0, 1)]
        assert receive(rows, 0, 2) == [
            (channels[0], [0]),
            (channels[1], [101]),
            (channels[0], [2]),
            (channels[1], [103]),
            (channels[0], [4]),
            (channels[1], [105]),
            (channels[0], [6]),
            (channels[0], [8]),
        ]


class TestSpooling:
    @given(inputs, st.integers(0, 400))
    def test_exceeding_the_memory_budget_does_not_change_the_result(self, producers, budget):
        rows = rows_of(producers)
        assert receive_all(rows, len(producers), budget) == receive_all(rows, len(producers))

    def test_buffers_beyond_the_budget_are_spooled_to_a_file(self):
        rows = [row for row in rows_of([list(range(200))], keyed=False) if row.target == 0 and row.kind == DATA]
        budget = sum(len(row.payload) for row in rows[:10])
        inbox = Inbox(EPOCH, [], budget)
        for row in rows:
            inbox.add_buffer(row)
        held = [payload for _, _, payload in inbox._arrived if isinstance(payload, bytes)]
        assert sum(map(len, held)) <= budget
        assert inbox._file is not None
        assert inbox._file.seek(0, 2) == sum(len(row.payload) for row in rows[10:])

    def test_the_spool_file_is_closed_when_the_task_ends(self):
        inbox = Inbox(EPOCH, None, budget=0)
        inbox.add_buffer(rows_of([[1, 2, 3]])[0])
        file = inbox._file
        inbox.close()
        assert file.closed

    def test_a_buffer_is_released_once_it_is_yielded(self):
        rows = [row for row in rows_of([list(range(20))], keyed=False) if row.target == 0]
        inbox = Inbox(EPOCH, [channel_of(0, 0)])
        for row in rows:
            (inbox.add_buffer if row.kind == DATA else inbox.add_barrier)(row)
        inbox.align()
        buffers = inbox.buffers()
        next(buffers)
        next(buffers)
        assert [bool(payload) for _, _, payload in inbox._arrived[:3]] == [False, False, True]


def test_a_failed_producer_ends_the_task_silently_even_if_other_channels_are_missing():
    out = []
    RoundRobinExchange(Outlet(SENDER, channel_of(0, 0), [Hop(0, route_to(1, 0))], PICKLED, 1, out), range(1), 0).close(
        EPOCH, True
    )
    inbox = Inbox(EPOCH, [channel_of(0, 0), channel_of(0, 1)])
    inbox.add_barrier(out[0])
    with pytest.raises(UpstreamFailed):
        inbox.align()
