"""Redis Streams as a source, against a real server: in order, once, and never without what was to be read."""

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
    """Entries n=…, with ids 1-0, 2-0, … by their numbers."""
    pipeline = server.client().pipeline(transaction=False)
    for n in numbers:
        pipeline.xadd(stream, {"n": n}, id=f"{n}-0")
    pipeline.execute()


def logged(positions):
    return json.loads(json.dumps(positions))


def numbers_source(server, *streams, **options):
    return RedisStreamSource(server.url, *streams, **{"decode": number_of, "bounded": True, **options})


class Reader:
    """Epoch by epoch as a driver and its tasks would read, each on a copy of the source."""

    def __init__(self, source):
        self.planner = pickle.loads(pickle.dumps(source))
        self.task = pickle.loads(pickle.dumps(source))
        self.positions = logged(self.planner.start(2))

    def plan(self, limit=None):
        """The ranges of the next epoch; [] for nothing new."""
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
    def test_gives_every_entry_once_in_order_and_no_epoch_more_than_the_limit(self, redis_server, limit):
        fill(redis_server, "numbers", range(1, 2503 if limit != 1 else 12))
        epochs = Reader(numbers_source(redis_server, "numbers")).epochs(limit)
        total = 2502 if limit != 1 else 11
        assert [n for epoch in epochs for n in epoch] == list(range(1, total + 1))
        assert all(len(epoch) <= (limit or total) for epoch in epochs)

    def test_shares_the_limit_between_streams_and_starves_none(self, redis_server):
        fill(redis_server, "busy", range(1, 31))
        fill(redis_server, "quiet", range(101, 104))
        reader = Reader(numbers_source(redis_server, "busy", "quiet"))
        epochs = reader.epochs(4)
        assert epochs[:2] == [[1, 2, 101, 102], [3, 4, 5, 103]]
        assert all(len(epoch) <= 4 for epoch in epochs)
        assert sorted(n for epoch in epochs for n in epoch) == [*range(1, 31), 101, 102, 103]

    def test_a_bounded_one_ends_with_what_was_there_when_it_started(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers"))
        fill(redis_server, "numbers", range(4, 6))
        assert reader.epochs(2) == [[1, 2], [3]]
        assert reader.planner.ends("numbers", reader.positions["numbers"])

    def test_a_bounded_one_ends_though_the_last_entry_is_deleted_before_it_is_planned(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers"))
        redis_server.client().xdel("numbers", "3-0")
        assert reader.epochs(None) == [[1, 2]]
        assert reader.planner.ends("numbers", reader.positions["numbers"])

    def test_an_unbounded_one_goes_on_with_what_is_added(self, redis_server):
        fill(redis_server, "numbers", [1])
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        assert reader.epochs(None) == [[1]]
        fill(redis_server, "numbers", [2, 3])
        assert reader.epochs(None) == [[2, 3]]
        assert not reader.planner.ends("numbers", reader.positions["numbers"])

    @pytest.mark.parametrize(("start", "expected"), [("beginning", [1, 2, 3, 4]), ("end", [4]), ("2", [3, 4])])
    def test_starts_where_it_is_told(self, redis_server, start, expected):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", start=start, bounded=False))
        fill(redis_server, "numbers", [4])
        assert [n for epoch in reader.epochs(None) for n in epoch] == expected

    def test_a_stream_that_is_new_in_the_program_is_read_from_its_start(self, redis_server):
        fill(redis_server, "old", [1])
        fill(redis_server, "new", [2])
        before = Reader(numbers_source(redis_server, "old", bounded=False))
        before.epochs(None)
        after = Reader(numbers_source(redis_server, "old", "new", bounded=False))
        after.positions = before.positions
        assert [n for epoch in after.epochs(None) for n in epoch] == [2]

    def test_that_was_bounded_goes_on_unbounded_and_the_other_way_round(self, redis_server):
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

    def test_knows_how_many_entries_wait(self, redis_server):
        fill(redis_server, "a", range(1, 1501))
        fill(redis_server, "b", range(1, 11))
        reader = Reader(numbers_source(redis_server, "a", "b", bounded=False))
        assert reader.planner.backlog(reader.positions) == 1510
        reader.plan(100)
        assert reader.planner.backlog(reader.positions) == 1410
        fill(redis_server, "b", range(11, 14))
        assert reader.planner.backlog(reader.positions) == 1413
        assert pickle.loads(pickle.dumps(reader.planner)).backlog(reader.positions) == 1413

    def test_trims_what_a_checkpoint_holds_only_when_asked(self, redis_server):
        fill(redis_server, "kept", range(1, 501))
        fill(redis_server, "trimmed", range(1, 501))
        for stream, trim in (("kept", False), ("trimmed", True)):
            reader = Reader(numbers_source(redis_server, stream, trim=trim))
            reader.read(reader.plan(400))
            reader.planner.commit(reader.positions)
            assert reader.epochs(None) == [list(range(401, 501))]
        assert redis_server.client().xlen("kept") == 500
        # Redis trims whole nodes of entries, so a few older ones may stay.
        assert 100 < redis_server.client().xlen("trimmed") < 300


class TestDecoding:
    def test_records_are_dicts_of_text_by_default(self, redis_server):
        redis_server.client().xadd("s", {"name": "Zoë", "n": 1})
        assert Reader(RedisStreamSource(redis_server.url, "s", bounded=True)).epochs(None) == [
            [{"name": "Zoë", "n": "1"}]
        ]

    def test_one_field_may_be_json_of_a_type(self, redis_server):
        redis_server.client().xadd("s", {"order": '{"id": 7, "price": 1.5}'})
        source = RedisStreamSource(redis_server.url, "s", bounded=True, decode=json_field("order", Order))
        assert Reader(source).epochs(None) == [[Order(7, 1.5)]]

    def test_a_function_sees_stream_id_and_time(self, redis_server):
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
    def test_what_cannot_be_decoded_is_named(self, redis_server, fields, decode, reason):
        redis_server.client().xadd("orders", {"order": "1", "n": 1}, id="1-1")
        redis_server.client().xadd("orders", fields, id="5-1")
        reader = Reader(RedisStreamSource(redis_server.url, "orders", bounded=True, decode=decode))
        planned = reader.plan()
        with pytest.raises(UnreadableRecord, match=reason) as caught:
            reader.read(planned)
        assert "Source 'RedisStreamSource' cannot read orders, entry 5-1: " in str(caught.value)
        assert f'The record: {{"{next(iter(fields))}":"' in str(caught.value)

    def test_what_cannot_be_decoded_may_go_aside(self, redis_server):
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
    def test_before_a_planned_range_was_read_again_is_an_error_that_names_the_range(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        planned = reader.plan(5)
        redis_server.client().xtrim("numbers", minid="4", approximate=False)
        with pytest.raises(EntriesMissing, match=r"'numbers' at 127.* 5 entries after 0-0 up to 5-0 .* 2 are left"):
            reader.read(planned)

    def test_in_the_middle_of_a_planned_range_is_an_error_too(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        planned = reader.plan()
        redis_server.client().xdel("numbers", "6-0")
        with pytest.raises(EntriesMissing, match=r"10 entries after 0-0 up to 10-0 .* 9 are left"):
            reader.read(planned)

    def test_before_it_was_planned_is_an_error_as_soon_as_the_stream_is_trimmed_past_what_was_read(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers"))
        assert reader.read(reader.plan(5)) == [1, 2, 3, 4, 5]
        redis_server.client().xtrim("numbers", minid="5", approximate=False)
        assert reader.read(reader.plan(2)) == [6, 7]
        redis_server.client().xtrim("numbers", minid="9", approximate=False)
        with pytest.raises(EntriesMissing, match=r"'numbers' at 127.* read up to 7-0, and nothing up to there is left"):
            reader.plan()

    def test_is_noticed_when_nothing_at_all_is_left(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.plan(1)
        redis_server.client().xtrim("numbers", maxlen=0, approximate=False)
        with pytest.raises(EntriesMissing, match="nothing up to there is left"):
            reader.plan()

    def test_does_no_harm_when_all_of_it_was_read(self, redis_server):
        fill(redis_server, "numbers", range(1, 4))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.read(reader.plan())
        redis_server.client().xtrim("numbers", maxlen=0, approximate=False)
        assert reader.plan() == []

    def test_a_server_that_lost_its_data_is_not_read_on_from(self, redis_server):
        fill(redis_server, "numbers", range(1, 11))
        reader = Reader(numbers_source(redis_server, "numbers", bounded=False))
        reader.plan()
        redis_server.client().flushall()
        with pytest.raises(EntriesMissing, match="There is no Redis stream 'numbers'"):
            reader.plan()
        fill(redis_server, "numbers", range(1, 4))
        with pytest.raises(EntriesMissing, match=r"read up to 10-0, but it only ever went to 3-0"):
            reader.plan()

    def test_may_be_passed_over_with_a_warning_told_once(self, redis_server, caplog):
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
    def test_is_an_error_that_names_it(self, redis_server):
        with pytest.raises(EntriesMissing, match=r"There is no Redis stream 'nothing' at 127.*wait_for_streams=True"):
            numbers_source(redis_server, "nothing").start(1)

    @pytest.mark.parametrize("start", ["beginning", "end"])
    def test_is_waited_for_when_asked(self, redis_server, start):
        source = numbers_source(redis_server, "late", bounded=False, wait_for_streams=True, start=start)
        reader = Reader(source)
        assert reader.plan() == []
        fill(redis_server, "late", [1, 2])
        assert reader.epochs(None) == [[1, 2]]

    def test_is_no_other_kind_of_key(self, redis_server):
        redis_server.client().set("text", "x")
        with pytest.raises(RedisRefused, match=r"refuses the stream 'text': .*WRONGTYPE.*use another key"):
            numbers_source(redis_server, "text").start(1)


class TestAServer:
    def test_that_dies_while_it_is_read_is_waited_for(self, mortal_redis, monkeypatch):
        fill(mortal_redis, "numbers", range(1, 3001))
        reader = Reader(numbers_source(mortal_redis, "numbers"))
        monkeypatch.setattr("penstock.connectors.redis.server.sleep", lambda _: mortal_redis.start())
        mortal_redis.kill()
        [part] = reader.plan()
        records = iter(reader.task.read("numbers", json.loads(part.start), json.loads(part.end)))
        first = [next(records) for _ in range(1500)]
        mortal_redis.kill()
        assert first + list(records) == list(range(1, 3001))

    def test_that_does_not_come_back_in_time_is_an_error_that_the_restart_strategy_decides_on(self, mortal_redis):
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

    def test_with_another_password_is_an_error_without_it(self, tmp_path):
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
                with pytest.raises(RedisRefused, match=r"refuses the login.*Correct user and password") as caught:
                    source.start(1)
                assert "wrong-one" not in str(caught.value) + repr(source) + repr(vars(source)["_server"])
                assert f"127.0.0.1:{server.port}" in str(caught.value)
                assert not caught.value.retryable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RedisStreamSource("redis://h"), "needs keys of streams"),
        (lambda: RedisStreamSource("redis://h", "a", "a"), "each once"),
        (lambda: RedisStreamSource("redis://h", "a", start="now"), "start must be 'beginning', 'end' or the id"),
        (lambda: RedisStreamSource("redis://h", "a", missing="pass"), "missing must be 'fail' or 'skip'"),
        (
            lambda: RedisStreamSource("redis://h", "a", bounded=True, wait_for_streams=True),
            "leave wait_for_streams out",
        ),
        (lambda: RedisStreamSource("redis://:se/cret@h:1", "a"), "cannot be read. Write redis://"),
        (lambda: RedisStreamSource("http://:secret@h:1", "a"), "cannot be read. Write redis://"),
    ],
)
def test_what_cannot_be_is_refused_at_once_and_without_a_secret(make, message):
    with pytest.raises(PenstockError, match=message) as caught:
        make()
    assert "cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def job(server, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    source = numbers_source(server, "numbers", **options)
    return env.from_source(source, source_name="numbers").uid("numbers").key_by(lambda n: n % 3).sum()


class TestInTheHarness:
    def test_every_entry_counts_once_whatever_crashes(self, redis_server):
        fill(redis_server, "numbers", range(1, 31))
        with JobHarness(job(redis_server), parallelism=2) as harness:
            harness.epoch(10)
            harness.crash_at("driver.collected")
            harness.epoch(10)
            harness.end()
            assert sorted(harness.output)[-3:] == [145, 155, 165]
            assert len(harness.output) == 30

    def test_another_harness_goes_on_where_the_checkpoint_is(self, redis_server):
        fill(redis_server, "numbers", range(1, 31))
        first = JobHarness(job(redis_server))
        first.epoch(10)
        with JobHarness(job(redis_server), storage=first.storage) as harness:
            assert len(harness.run(7)) == 20
            assert sorted(harness.output)[-3:] == [145, 155, 165]
