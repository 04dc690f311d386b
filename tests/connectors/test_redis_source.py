"""Redis Streams as a source, against a real server: entries arrive once, in order, and losses are detected."""

import json
import pickle
from dataclasses import dataclass

import pytest

from penstock.connectors.dead_letters import UnreadableRecord
from penstock.connectors.redis.server import RedisRefused, RedisUnavailable
from penstock.connectors.redis.stream_source import EntriesMissing
from penstock.connectors.source import ranges, read_split
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors.redis import RedisStreamSource, json_field
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def number_of(entry):
    return int(entry.fields[b"n"])


def facts_of(entry):
    return entry.stream, entry.id, entry.time


def fill(server, stream, numbers):
    """Add entries n=… with ids 1-0, 2-0, … by their number."""
    pipeline = server.client().pipeline(transaction=False)
    for n in numbers:
        pipeline.xadd(stream, {"n": n}, id=f"{n}-0")
    pipeline.execute()


def logged(positions):
    return json.loads(json.dumps(positions))


def numbers_source(server, *streams, **options):
    return RedisStreamSource(server.url, *streams, **{"decode": number_of, "bounded": True, **options})


class Reader:
    """Reads epochs like a driver and its tasks, each with a copy of the source."""

    def __init__(self, source):
        self.planner = pickle.loads(pickle.dumps(source))
        self.task = pickle.loads(pickle.dumps(source))
        self.positions = logged(self.planner.start(2))

    def plan(self, limit=None):
        """Return the ranges of the next epoch; [] if there is nothing new."""
        ahead = logged(self.planner.advance(dict(self.positions), limit))
        planned, self.positions = ranges(self.positions, ahead), ahead
        return planned

    def read(self, planned):
        return [record for part in planned for chunk in read_split(self.task, *part) for record in chunk.records]

    def epochs(self, limit):
        result = []
        while planned := self.plan(limit):
            result.append(self.read(planned))
        return result


class TestReading:
    @pytest.mark.parametrize("limit", [None, 1, 7, 1000, 1001, 5000])
    def test_every_entry_is_read_once_in_order_within_the_limit(self, redis_server, limit):
        fill(redis_server, "numbers", range(1, 2503 if limit != 1 else 12))
        epochs = Reader(numbers_source(redis_server, "numbers")).epochs(limit)
        total = 2502 if limit != 1 else 11
        assert [n for epoch in epochs for n in epoch] == list(range(1, total + 1))
        assert all(len(epoch) <= (limit or total) for epoch in epochs)

    def test_streams_share_the_limit_and_none_starves(self, redis_server):
        fill(redis_server, "busy", range(1, 31))
        fill(redis_server, "quiet", range(101, 104))
        reader = Reader(numbers_source(redis_server, "busy", "quiet"))
        epochs = reader.epochs(4)
        assert epochs[:2] == [[1, 2, 101, 102], [3, 4, 5, 103]]
        assert all(len(epoch) <= 4 for epoch in epochs)
        assert sorted(n for epoch in epochs for n in epoch) == [*range(1, 31), 101, 102, 103]

    def test_a_bounded_source_ends_with_the_entries_that_exist_at_its_start(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers"))
        fill(redis_server, "numbers", range(4, 6))
        assert reader.epochs(2) == [[1, 2], [3]]
        assert reader.planner.ends("numbers", reader.positions["numbers"])

    def test_a_bounded_source_ends_although_its_last_entry_was_deleted(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers"))
        redis_server.client().xdel("numbers", "3-0")
        assert reader.epochs(None) == [[1, 2]]
        assert reader.planner.ends("numbers", reader.positions["numbers"])

    def test_an_unbounded_source_continues_with_added_entries(self, redis_server):
        fill(redis_server, "numbers", [1])
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        assert reader.epochs(None) == [[1]]
        fill(redis_server, "numbers", [2, 3])
        assert reader.epochs(None) == [[2, 3]]
        assert not reader.planner.ends("numbers", reader.positions["numbers"])

    @pytest.mark.parametrize(("start", "expected"), [("beginning", [1, 2, 3, 4]), ("end", [4]), ("2", [3, 4])])
    def test_reading_starts_at_the_configured_position(self, redis_server, start, expected):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", start=start, bounded=False))
        fill(redis_server, "numbers", [4])
        assert [n for epoch in reader.epochs(None) for n in epoch] == expected

    def test_a_stream_added_to_the_program_is_read_from_its_start(self, redis_server):
        fill(redis_server, "old", [1])
        fill(redis_server, "new", [2])
        before = Reader(numbers_source(redis_server, "old", bounded=False))
        before.epochs(None)
        after = Reader(numbers_source(redis_server, "old", "new", bounded=False))
        after.positions = before.positions
        assert [n for epoch in after.epochs(None) for n in epoch] == [2]

    def test_a_source_can_change_between_bounded_and_unbounded(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers"))
        assert reader.epochs(None) == [[1, 2, 3]]
        fill(redis_server, "numbers", [4, 5])
        endless = Reader(numbers_source(redis_server, "numbers", bounded=False))
        endless.positions = reader.positions
        assert [n for epoch in endless.epochs(1) for n in epoch] == [4, 5]
        assert not endless.planner.ends("numbers", endless.positions["numbers"])
        fill(redis_server, "numbers", [6, 7])
        reader.positions = endless.positions
        assert [n for epoch in reader.epochs(1) for n in epoch] == [6, 7]
        assert reader.planner.ends("numbers", reader.positions["numbers"])

    def test_the_backlog_counts_waiting_entries(self, redis_server):
        fill(redis_server, "a", range(1, 1501))
        fill(redis_server, "b", range(1, 11))
        reader = Reader(numbers_source(redis_server, "a", "b", bounded=False))
        assert reader.planner.backlog(reader.positions) == 1510
        reader.plan(100)
        assert reader.planner.backlog(reader.positions) == 1410
        fill(redis_server, "b", range(11, 14))
        assert reader.planner.backlog(reader.positions) == 1413
        assert pickle.loads(pickle.dumps(reader.planner)).backlog(reader.positions) == 1413

    def test_checkpointed_entries_are_trimmed_only_if_configured(self, redis_server):
        fill(redis_server, "kept", range(1, 501))
        fill(redis_server, "trimmed", range(1, 501))
        for stream, trim in (("kept", False), ("trimmed", True)):
            reader = Reader(numbers_source(redis_server, stream, trim=trim))
            reader.read(reader.plan(400))
            reader.planner.commit(reader.positions)
            assert reader.epochs(None) == [list(range(401, 501))]
        assert redis_server.client().xlen("kept") == 500
        # Redis trims complete nodes, so some older entries can remain.
        assert 100 < redis_server.client().xlen("trimmed") < 300


class TestDecoding:
    def test_records_are_dicts_of_text_by_default(self, redis_server):
        redis_server.client().xadd("s", {"name": "Zoë", "n": 1})
        assert Reader(RedisStreamSource(redis_server.url, "s", bounded=True)).epochs(None) == [
            [{"name": "Zoë", "n": "1"}]
        ]

    def test_a_json_field_is_decoded_to_a_type(self, redis_server):
        redis_server.client().xadd("s", {"order": '{"id": 7, "price": 1.5}'})
        source = RedisStreamSource(redis_server.url, "s", bounded=True, decode=json_field("order", Order))
        assert Reader(source).epochs(None) == [[Order(7, 1.5)]]

    def test_a_decoder_sees_the_stream_the_id_and_the_time(self, redis_server):
        redis_server.client().xadd("s", {"n": 1}, id="1700000000123-4")
        source = RedisStreamSource(redis_server.url, "s", bounded=True, decode=facts_of)
        assert Reader(source).epochs(None) == [[("s", "1700000000123-4", 1700000000123)]]

    @pytest.mark.parametrize(
        ("fields", "decode", "reason"),
        [
            ({"order": "{broken"}, json_field("order"), "JSON is malformed"),
            ({"other": "1"}, json_field("order"), "it has no field 'order'"),
            ({"name": b"\xff"}, None, "UnicodeDecodeError"),
            ({"n": "one"}, number_of, "invalid literal for int"),
        ],
    )
    def test_an_undecodable_entry_is_reported(self, redis_server, fields, decode, reason):
        redis_server.client().xadd("orders", {"order": "1", "n": 1}, id="1-1")
        redis_server.client().xadd("orders", fields, id="5-1")
        reader = Reader(RedisStreamSource(redis_server.url, "orders", bounded=True, decode=decode))
        planned = reader.plan()
        with pytest.raises(UnreadableRecord, match=reason) as caught:
            reader.read(planned)
        assert "Source 'RedisStreamSource' cannot read orders, entry 5-1: " in str(caught.value)
        assert f'The record: {{"{next(iter(fields))}":"' in str(caught.value)

    def test_an_undecodable_entry_becomes_a_dead_letter(self, redis_server):
        client = redis_server.client()
        client.xadd("orders", {"order": '{"id": 1, "price": 2}'}, id="1-0")
        client.xadd("orders", {"order": "{broken", "from": b"\xff"}, id="2-0")
        client.xadd("orders", {"order": '{"id": 3, "price": 4}'}, id="3-0")
        broken = OutputTag("broken")
        env = StreamExecutionEnvironment.get_execution_environment()
        source = RedisStreamSource(redis_server.url, "orders", bounded=True, decode=json_field("order", Order))
        orders = env.from_source(source, source_name="orders", dead_letters=broken)
        letters = orders.get_side_output(broken)
        with JobHarness(orders.map(lambda order: order.id).union(letters)) as job:
            first, letter, last = sorted(job.run(), key=lambda each: getattr(each, "position", f"entry {each}-0"))
        assert (first, last) == (1, 3)
        assert (letter.source, letter.split, letter.position) == ("orders", "orders", "entry 2-0")
        assert json.loads(letter.raw) == {"order": "{broken", "from": "\\xff"}


@dataclass
class Order:
    id: int
    price: float


class TestWhatIsGone:
    def test_entries_deleted_before_a_replay_are_an_error(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        planned = reader.plan(5)
        redis_server.client().xtrim("numbers", minid="4", approximate=False)
        with pytest.raises(EntriesMissing, match=r"'numbers' at 127.* only 2 of the 5 entries .* after 0-0 up to 5-0"):
            reader.read(planned)

    def test_an_entry_deleted_within_a_planned_range_is_an_error(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        planned = reader.plan()
        redis_server.client().xdel("numbers", "6-0")
        with pytest.raises(EntriesMissing, match=r"only 9 of the 10 entries .* after 0-0 up to 10-0"):
            reader.read(planned)

    def test_a_stream_trimmed_past_the_last_read_entry_is_an_error(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        assert reader.read(reader.plan(5)) == [1, 2, 3, 4, 5]
        redis_server.client().xtrim("numbers", minid="5", approximate=False)
        assert reader.read(reader.plan(2)) == [6, 7]
        redis_server.client().xtrim("numbers", minid="9", approximate=False)
        with pytest.raises(EntriesMissing, match=r"'numbers' at 127.* read up to 7-0, but no entry up to there exists"):
            reader.plan()

    def test_a_completely_trimmed_stream_is_an_error(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.plan(1)
        redis_server.client().xtrim("numbers", maxlen=0, approximate=False)
        with pytest.raises(EntriesMissing, match="no entry up to there exists"):
            reader.plan()

    def test_trimming_is_harmless_if_all_entries_were_read(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.read(reader.plan())
        redis_server.client().xtrim("numbers", maxlen=0, approximate=False)
        assert reader.plan() == []

    def test_a_server_that_lost_its_data_is_detected(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.plan()
        redis_server.client().flushall()
        with pytest.raises(EntriesMissing, match="The Redis stream 'numbers' does not exist"):
            reader.plan()
        fill(redis_server, "numbers", range(1, 4))
        with pytest.raises(EntriesMissing, match=r"read up to 10-0, but its last id is only 3-0"):
            reader.plan()

    def test_missing_entries_can_be_skipped_with_one_warning(self, redis_server, caplog):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False, missing="skip"))
        planned = reader.plan(4)
        redis_server.client().xtrim("numbers", minid="4", approximate=False)
        assert reader.read(planned) == [4]
        redis_server.client().xtrim("numbers", maxlen=0, approximate=False)
        reader.plan()
        assert reader.plan() == []
        fill(redis_server, "numbers", [11])
        assert reader.epochs(None) == [[11]]
        assert len(caplog.records) == 2
        assert not reader.planner.replayable


class TestAStreamThatIsNotThere:
    def test_a_missing_stream_is_an_error(self, redis_server):
        with pytest.raises(EntriesMissing, match=r"stream 'nothing' does not exist at 127.*wait_for_streams=True"):
            numbers_source(redis_server, "nothing").start(1)

    @pytest.mark.parametrize("start", ["beginning", "end"])
    def test_a_missing_stream_is_waited_for_if_configured(self, redis_server, start):
        source = numbers_source(redis_server, "late", bounded=False, wait_for_streams=True, start=start)
        reader = Reader(source)
        assert reader.plan() == []
        fill(redis_server, "late", [1, 2])
        assert reader.epochs(None) == [[1, 2]]

    def test_a_key_of_another_type_is_rejected(self, redis_server):
        redis_server.client().set("text", "x")
        with pytest.raises(RedisRefused, match=r"rejects the stream 'text': .*WRONGTYPE.*use another key"):
            numbers_source(redis_server, "text").start(1)


class TestAServer:
    def test_a_server_that_dies_during_a_read_is_waited_for(self, mortal_redis, monkeypatch):
        fill(mortal_redis, "numbers", range(1, 3001))
        reader = Reader(numbers_source(mortal_redis, "numbers"))
        monkeypatch.setattr("penstock.connectors.redis.server.sleep", lambda _: mortal_redis.start())
        mortal_redis.kill()
        [part] = reader.plan()
        records = iter(reader.task.read("numbers", json.loads(part.start), json.loads(part.end)))
        first = [next(records) for _ in range(1500)]
        mortal_redis.kill()
        assert first + list(records) == list(range(1, 3001))

    def test_a_server_that_stays_down_is_left_to_the_restart_strategy(self, mortal_redis):
        fill(mortal_redis, "numbers", [1])
        reader = Reader(numbers_source(mortal_redis, "numbers", retry_for=0))
        mortal_redis.kill()
        with pytest.raises(
            RedisUnavailable, match=rf"Redis at 127.0.0.1:{mortal_redis.port}/0 .*stream 'numbers'"
        ) as e:
            reader.plan()
        assert e.value.retryable
        mortal_redis.start()
        assert reader.epochs(None) == [[1]]

    def test_a_wrong_password_is_reported_without_being_shown(self, tmp_path):
        from chaos.servers.redis import RedisServer

        with RedisServer(tmp_path, password="right-one") as server:
            fill(server, "numbers", [1])
            assert Reader(numbers_source(server, "numbers")).epochs(None) == [[1]]
            plain = f"redis://127.0.0.1:{server.port}"
            right = RedisStreamSource(plain, "numbers", decode=number_of, bounded=True, password="right-one")
            assert Reader(right).epochs(None) == [[1]]
            for source in (
                RedisStreamSource(f"redis://:wrong-one@127.0.0.1:{server.port}", "numbers"),
                RedisStreamSource(plain, "numbers", password="wrong-one"),
                RedisStreamSource(plain, "numbers"),
            ):
                with pytest.raises(
                    RedisRefused, match=r"rejects the login.*Correct the user and the password"
                ) as caught:
                    source.start(1)
                assert "wrong-one" not in str(caught.value) + repr(source) + repr(vars(source)["_server"])
                assert f"127.0.0.1:{server.port}" in str(caught.value)
                assert not caught.value.retryable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RedisStreamSource("redis://h"), "needs distinct stream keys"),
        (lambda: RedisStreamSource("redis://h", "a", "a"), "distinct"),
        (lambda: RedisStreamSource("redis://h", "a", start="now"), "start must be 'beginning', 'end' or an entry id"),
        (lambda: RedisStreamSource("redis://h", "a", missing="pass"), "missing must be 'fail' or 'skip'"),
        (
            lambda: RedisStreamSource("redis://h", "a", bounded=True, wait_for_streams=True),
            "wait_for_streams needs an unbounded source",
        ),
        (lambda: RedisStreamSource("redis://:se/cret@h:1", "a"), "URL is invalid. Use redis://"),
        (lambda: RedisStreamSource("http://:secret@h:1", "a"), "URL is invalid. Use redis://"),
    ],
)
def test_invalid_arguments_are_rejected_without_showing_a_password(make, message):
    with pytest.raises(PenstockError, match=message) as caught:
        make()
    assert "cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def job(server, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    source = numbers_source(server, "numbers", **options)
    return env.from_source(source, source_name="numbers").uid("numbers").key_by(lambda n: n % 3).sum()


class TestInTheHarness:
    def test_every_entry_counts_once_after_a_crash(self, redis_server):
        fill(redis_server, "numbers", range(1, 31))
        with JobHarness(job(redis_server), parallelism=2) as harness:
            harness.epoch(10)
            harness.crash_at("driver.collected")
            harness.epoch(10)
            harness.end()
            assert sorted(harness.output)[-3:] == [145, 155, 165]
            assert len(harness.output) == 30

    def test_another_harness_resumes_from_the_checkpoint(self, redis_server):
        fill(redis_server, "numbers", range(1, 31))
        first = JobHarness(job(redis_server))
        first.epoch(10)
        with JobHarness(job(redis_server), storage=first.storage) as harness:
            assert len(harness.run(7)) == 20
            assert sorted(harness.output)[-3:] == [145, 155, 165]
