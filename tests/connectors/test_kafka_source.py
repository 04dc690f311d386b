"""KafkaSource by its contract, against librdkafka's mock brokers: each record once, in order, or an error."""

import json
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.serialization import ByteArraySchema, JsonSchema, SimpleStringSchema
from penstock.connectors.dead_letters import UnreadableRecord
from penstock.connectors.kafka.client import KafkaError
from penstock.connectors.kafka.kafka_source import share
from penstock.connectors.kafka.reader import OffsetGone
from penstock.connectors.source import ranges, read_split
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)

FETCH, LIST_OFFSETS = 1, 2
"""Request types of Kafka's protocol."""
NOT_LEADER, TOPIC_AUTHORIZATION_FAILED = 6, 29
"""Error codes of Kafka's protocol."""


def building(kafka, *topics):
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_topics(*topics) if topics else builder


class Planned:
    """Uses a source like a driver: positions are JSON, and a separate copy reads the ranges."""

    def __init__(self, source, positions):
        self.source = pickle.loads(pickle.dumps(source))
        self.reader = pickle.loads(pickle.dumps(source))
        self.positions = self._logged(self.source.start(1)) if positions is None else positions
        self.last = []

    def epoch(self, limit=None):
        """Return the records of the next epoch."""
        ahead = self._logged(self.source.advance(dict(self.positions), limit))
        self.last, self.positions = ranges(self.positions, ahead), ahead
        return self.again()

    def again(self):
        """Return the records of the same epoch, as after a failure."""
        chunks = [chunk for part in self.last for chunk in read_split(self.reader, *part)]
        return [record.value for chunk in chunks for record in chunk.records]

    def close(self):
        self.source.close()
        self.reader.close()

    def _logged(self, positions):
        return json.loads(json.dumps(positions))


@pytest.fixture
def plan():
    """Return a factory of `Planned` sources, new or from positions, that are closed after the test."""
    planned = []

    def make(builder, positions=None):
        planned.append(Planned(builder.build(), positions))
        return planned[-1]

    yield make
    for each in planned:
        each.close()


class TestAnEpoch:
    def test_an_epoch_reads_new_records_once(self, kafka, plan):
        topic = kafka.topic(2)
        kafka.send(topic, "a", "b", partition=0)
        kafka.send(topic, "c", partition=1)
        job = plan(building(kafka, topic))
        assert job.epoch() == ["a", "b", "c"]
        assert job.epoch() == []
        kafka.send(topic, "d", partition=1)
        kafka.send(topic, "e", partition=0)
        assert job.epoch() == ["e", "d"]

    def test_a_replayed_epoch_is_the_same_although_records_were_added(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *map(str, range(5)))
        job = plan(building(kafka, topic))
        job.epoch(3)
        kafka.send(topic, "late")
        assert job.again() == ["0", "1", "2"]
        assert job.again() == ["0", "1", "2"]

    def test_an_epoch_respects_the_limit(self, kafka, plan):
        topic = kafka.topic(3)
        for partition, count in enumerate((40, 7, 0)):
            kafka.send(topic, *(f"{partition}:{number}" for number in range(count)), partition=partition)
        job = plan(building(kafka, topic))
        epochs = []
        while records := job.epoch(10):
            epochs.append(records)
        assert [len(records) for records in epochs] == [10, 10, 10, 10, 7]
        assert sorted(record for epoch in epochs for record in epoch) == sorted(
            [f"0:{n}" for n in range(40)] + [f"1:{n}" for n in range(7)]
        )

    def test_an_epoch_ends_after_a_transaction_marker(self, kafka, plan):
        topic = kafka.topic()
        kafka.send_in_transaction(topic, "a", "b")
        kafka.send_in_transaction(topic, "c")
        job = plan(building(kafka, topic))
        assert job.epoch() == ["a", "b", "c"]
        assert job.positions == {f"{topic}/0": [5, None]}
        kafka.send(topic, "d")
        assert job.epoch() == ["d"]

    def test_an_epoch_can_end_within_a_gap_of_offsets(self, kafka, plan):
        topic = kafka.topic()
        kafka.send_in_transaction(topic, "a")
        kafka.send_in_transaction(topic, "b")
        kafka.send(topic, "c")
        job = plan(building(kafka, topic))
        assert [job.epoch(1) for _ in range(5)] == [["a"], [], ["b"], [], ["c"]]

    def test_a_large_epoch_is_read_in_order(self, kafka, plan):
        topic = kafka.topic()
        values = [str(number) for number in range(5000)]
        kafka.send(topic, *values)
        job = plan(building(kafka, topic))
        assert job.epoch(3210) + job.epoch() == values

    def test_the_isolation_level_can_be_changed(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "a")
        assert plan(building(kafka, topic).set_property("isolation.level", "read_uncommitted")).epoch() == ["a"]


class TestPositions:
    def test_positions_determine_the_backlog(self, kafka, plan):
        topic = kafka.topic(2)
        kafka.send(topic, *"abc", partition=0)
        kafka.send(topic, *"de", partition=1)
        job = plan(building(kafka, topic))
        assert job.source.backlog(job.positions) == 5
        job.epoch(2)
        assert job.source.backlog(job.positions) == 3

    def test_positions_are_committed_to_the_group(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        job = plan(building(kafka, topic).set_group_id(f"group of {topic}"))
        job.epoch()
        job.source.commit(job.positions)
        job.source.close()
        assert kafka.committed(f"group of {topic}", topic) == 3

    def test_commits_to_the_group_can_be_disabled(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        builder = building(kafka, topic).set_group_id(f"group of {topic}")
        job = plan(builder.set_property("commit.offsets.on.checkpoint", "false"))
        job.source.commit(job.positions)
        job.source.close()
        assert kafka.committed(f"group of {topic}", topic) < 0

    def test_a_resumed_job_ignores_the_offsets_of_the_group(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        builder = building(kafka, topic).set_group_id("g").set_starting_offsets(KafkaOffsetsInitializer.latest())
        job = plan(builder, {f"{topic}/0": [1, None]})
        assert job.epoch() == ["b", "c"]

    @given(
        limit=st.integers(1, 60),
        waiting=st.dictionaries(st.text(max_size=2), st.integers(0, 100), min_size=1, max_size=9),
    )
    def test_partitions_share_the_limit_and_each_gets_a_part(self, limit, waiting):
        shares = share(limit, waiting)
        some = [split for split, count in waiting.items() if count]
        assert sum(shares.values()) == min(limit, sum(waiting.values()))
        assert all(0 <= count <= waiting[split] for split, count in shares.items())
        if limit >= len(some):
            assert all(shares[split] >= 1 for split in some)


class TestPartitions:
    def test_new_partitions_are_read_from_their_start(self, kafka, plan):
        prefix = kafka.topic()
        job = plan(
            building(kafka).set_topic_pattern(f"{prefix}.*").set_property("partition.discovery.interval.ms", "1")
        )
        kafka.topic(2, f"{prefix}-more")
        kafka.send(f"{prefix}-more", "a", partition=0)
        kafka.send(f"{prefix}-more", "b", partition=1)
        found = []
        while len(found) < 2:
            found += job.epoch()
        assert found == ["a", "b"]
        assert job.positions == {f"{prefix}/0": [0, None], f"{prefix}-more/0": [1, None], f"{prefix}-more/1": [1, None]}

    def test_partitions_added_while_the_job_was_down_are_found_immediately(self, kafka, plan):
        topic = kafka.topic(2)
        kafka.send(topic, "old", partition=0)
        kafka.send(topic, "new", partition=1)
        job = plan(building(kafka, topic), {f"{topic}/0": [0, None]})
        assert job.epoch() + job.epoch() == ["old", "new"]

    def test_single_partitions_can_be_read(self, kafka, plan):
        topic = kafka.topic(3)
        for partition in range(3):
            kafka.send(topic, str(partition), partition=partition)
        wanted = {KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 2)}
        assert plan(building(kafka).set_partitions(wanted)).epoch() == ["0", "2"]

    def test_an_unsubscribed_partition_keeps_its_position(self, kafka, plan):
        kept, left = kafka.topic(), kafka.topic()
        kafka.send(kept, "a")
        kafka.send(left, "b")
        job = plan(building(kafka, kept), {f"{kept}/0": [0, None], f"{left}/0": [0, None]})
        assert job.epoch() == ["a"]
        assert job.positions[f"{left}/0"] == [0, None]

    def test_a_pattern_without_matches_waits_for_topics(self, kafka, plan):
        job = plan(building(kafka).set_topic_pattern("not-there-yet-.*"))
        assert job.epoch() == []


class TestStartAndStop:
    def test_reading_can_start_at_the_latest_offsets(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "old")
        job = plan(building(kafka, topic).set_starting_offsets(KafkaOffsetsInitializer.latest()))
        kafka.send(topic, "new")
        assert job.epoch() == ["new"]

    def test_reading_can_start_at_given_offsets_with_a_reset_strategy(self, kafka, plan):
        topic = kafka.topic(2)
        kafka.send(topic, *"abc", partition=0)
        kafka.send(topic, *"de", partition=1)
        starting = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
        assert plan(building(kafka, topic).set_starting_offsets(starting)).epoch() == ["c", "d", "e"]

    def test_partitions_without_a_given_offset_start_at_the_groups(self, kafka, plan):
        topic = kafka.topic(3)
        for partition, letters in enumerate(("abc", "de", "fg")):
            kafka.send(topic, *letters, partition=partition)
        first = plan(building(kafka, topic).set_group_id(topic))
        first.source.commit({f"{topic}/0": [1, None], f"{topic}/1": [1, None]})
        first.source.close()
        starting = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
        job = plan(building(kafka, topic).set_group_id(topic).set_starting_offsets(starting))
        assert sorted(job.epoch()) == ["c", "e", "f", "g"]

    def test_reading_can_start_at_committed_offsets_with_a_reset_strategy(self, kafka, plan):
        topic = kafka.topic(2)
        kafka.send(topic, *"abc", partition=0)
        kafka.send(topic, *"de", partition=1)
        first = plan(building(kafka, topic).set_group_id(topic))
        first.source.commit({f"{topic}/0": [1, None]})
        first.source.close()
        starting = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
        job = plan(building(kafka, topic).set_group_id(topic).set_starting_offsets(starting))
        assert job.positions == {f"{topic}/0": [1, None], f"{topic}/1": [2, None]}

    def test_a_start_time_after_the_last_record_starts_at_the_end(self, kafka, plan):
        # The mock brokers do not find records by timestamp, and always report no match.
        topic = kafka.topic()
        kafka.send(topic, "old", timestamp=1000)
        job = plan(building(kafka, topic).set_starting_offsets(KafkaOffsetsInitializer.timestamp(2000)))
        kafka.send(topic, "new", timestamp=3000)
        assert job.epoch() == ["new"]

    def test_missing_committed_offsets_without_a_reset_strategy_are_rejected(self, kafka, plan):
        topic = kafka.topic()
        builder = building(kafka, topic).set_group_id(topic)
        with pytest.raises(KafkaError, match=rf"'{topic}', partition 0: the group has no committed offset.*EARLIEST"):
            plan(builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()))

    def test_a_bounded_source_stops_at_the_offsets_found_at_its_start_even_after_a_restart(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        builder = building(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
        job = plan(builder)
        assert job.source.bounded
        assert job.epoch(2) == ["a", "b"]
        assert not job.source.ends(f"{topic}/0", job.positions[f"{topic}/0"])
        kafka.send(topic, "after")
        restarted = plan(builder, job.positions)
        assert restarted.epoch() == ["c"]
        assert restarted.source.ends(f"{topic}/0", restarted.positions[f"{topic}/0"])
        assert restarted.epoch() == []

    def test_an_unbounded_source_waits_for_the_offset_it_stops_at(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "a")
        stopping = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
        job = plan(building(kafka, topic).set_unbounded(stopping))
        assert not job.source.bounded
        assert job.epoch() == ["a"]
        kafka.send(topic, "b", "c")
        assert job.epoch() == ["b"]
        assert job.source.ends(f"{topic}/0", job.positions[f"{topic}/0"])

    def test_a_bounded_source_cannot_stop_at_a_future_offset(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "a")
        stopping = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
        with pytest.raises(KafkaError, match=r"offset 2 does not exist yet; the next one will be 1\. .*set_unbounded"):
            plan(building(kafka, topic).set_bounded(stopping))


class TestRecords:
    def test_records_have_their_kafka_timestamp(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "a", timestamp=1234)
        job = plan(building(kafka, topic))
        job.epoch()
        [chunk] = [chunk for part in job.last for chunk in read_split(job.reader, *part)]
        assert chunk.records == [("a", 1234)]
        assert job.source.gives_time

    def test_records_can_include_all_kafka_metadata(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, '{"n": 1}', key="k", timestamp=5, headers=[("h", b"1"), ("h", b"2")])
        kafka.send(topic, None, key="k", timestamp=6)
        schema = KafkaRecordDeserializationSchema.records(JsonSchema(), SimpleStringSchema())
        builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic).set_deserializer(schema)
        assert plan(builder).epoch() == [
            KafkaRecord("k", {"n": 1}, 5, topic, 0, 0, [("h", b"1"), ("h", b"2")]),
            KafkaRecord("k", None, 6, topic, 0, 1, []),
        ]

    def test_records_can_be_bytes(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, b"\xff", None)
        assert plan(building(kafka, topic).set_value_only_deserializer(ByteArraySchema())).epoch() == [b"\xff", None]

    def test_an_undecodable_record_is_reported_with_its_position(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, '{"n": 1}', '{"n": ', key="k")
        job = plan(building(kafka, topic).set_value_only_deserializer(JsonSchema()))
        with pytest.raises(
            UnreadableRecord, match=rf'(?s)cannot read {topic}/0, offset 1: .*truncated.*The record: \{{"n":'
        ):
            job.epoch()

    def test_records_have_no_timestamp_without_watermarks(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, "a", timestamp=1234)
        source = building(kafka, topic).build().without_time()
        [chunk] = list(read_split(source, f"{topic}/0", "[0, null]", "[1, null]"))
        source.close()
        assert chunk.records == ["a"]
        assert not source.gives_time


class TestWhatIsMissing:
    def test_a_missing_topic_is_reported_before_a_record_is_read(self, kafka, plan):
        with pytest.raises(KafkaError, match=rf"topic 'missing-topic' does not exist at {kafka.servers}.*Create it"):
            plan(building(kafka, kafka.topic(), "missing-topic"))
        # The lookup did not create it.
        with pytest.raises(KafkaError, match="topic 'missing-topic' does not exist"):
            plan(building(kafka, "missing-topic"))

    def test_a_deleted_topic_is_reported_when_the_job_resumes(self, kafka, plan):
        topic = kafka.topic()
        job = plan(building(kafka, topic))
        job.epoch()
        kafka.delete(topic)
        with pytest.raises(KafkaError, match=f"topic '{topic}' does not exist"):
            plan(building(kafka, topic), job.positions).epoch()

    def test_a_missing_partition_is_reported(self, kafka, plan):
        topic = kafka.topic(2)
        with pytest.raises(KafkaError, match=rf"topic '{topic}' .* has no partition 2: it has 2"):
            plan(building(kafka).set_partitions({KafkaTopicPartition(topic, 2)}))

    def test_a_bounded_pattern_without_matches_is_rejected(self, kafka, plan):
        builder = building(kafka).set_topic_pattern("nothing-like-this").set_bounded(KafkaOffsetsInitializer.latest())
        with pytest.raises(KafkaError, match="matches 'nothing-like-this'"):
            plan(builder)

    def test_records_removed_by_retention_are_never_skipped(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abcdef")
        job = plan(building(kafka, topic))
        job.epoch(2)
        kafka.delete_records(topic, 0, before=4)
        with pytest.raises(
            OffsetGone,
            match=rf"'{topic}', partition 0: offset 2 no longer exists: .* offsets 4 to 5, so .* removed 2 offsets",
        ):
            job.epoch()

    def test_a_recreated_topic_is_detected(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        job = plan(building(kafka, topic))
        job.epoch()
        kafka.delete(topic)
        kafka.topic(name=topic)
        kafka.send(topic, "x")
        with pytest.raises(
            OffsetGone, match=r"offset 3 no longer exists: the partition holds offsets 0 to 0, so .*recreated"
        ):
            job.epoch()

    def test_a_cluster_that_does_not_respond_is_named(self, plan):
        builder = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("t")
        builder.set_value_only_deserializer(SimpleStringSchema()).set_property("socket.timeout.ms", "1000")
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1 cannot list the topics: .*brokers are running"):
            plan(builder)

    def test_librdkafka_logs_at_debug_level(self, caplog):
        caplog.set_level("DEBUG")
        builder = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("orders")
        builder.set_value_only_deserializer(SimpleStringSchema()).set_property("socket.timeout.ms", "1000")
        source = builder.build()
        with pytest.raises(KafkaError, match="cannot list the topics"):
            source.start(1)
        source.close()
        said = [record for record in caplog.records if "Connection refused" in record.getMessage()]
        assert {(record.name, record.levelname) for record in said} == {
            ("penstock.connectors.kafka.librdkafka", "DEBUG")
        }

    @pytest.mark.parametrize("console", ["", "from penstock.common.console import console; console()"])
    def test_librdkafka_log_lines_do_not_reach_the_terminal(self, console):
        program = f"""
from penstock.common import SimpleStringSchema
from penstock.datastream.connectors.kafka import KafkaSource
{console}
builder = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("orders")
builder.set_value_only_deserializer(SimpleStringSchema()).set_property("socket.timeout.ms", "500")
try:
    builder.build().start(1)
except Exception as error:
    print(type(error).__name__)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("KafkaError\n", "")


class TestABroker:
    def test_a_leader_change_loses_no_record(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        job = plan(building(kafka, topic))
        kafka.refuse(LIST_OFFSETS, NOT_LEADER)
        kafka.refuse(FETCH, NOT_LEADER, NOT_LEADER)
        assert job.epoch() == ["a", "b", "c"]

    def test_an_authorization_error_is_reported_with_the_position(self, kafka, plan):
        topic = kafka.topic()
        kafka.send(topic, *"abc")
        job = plan(building(kafka, topic))
        job.epoch(1)
        kafka.refuse(FETCH, *[TOPIC_AUTHORIZATION_FAILED] * 3)
        with pytest.raises(
            KafkaError, match=rf"cannot read topic '{topic}', partition 0 from offset 1 on: .*uthorization"
        ):
            job.epoch()


class TestBuilding:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda b: b.build(), "needs servers: set_bootstrap_servers"),
            (lambda b: b.set_bootstrap_servers("h:1").build(), "needs topics to read: set_topics"),
            (lambda b: b.set_bootstrap_servers("h:1").set_topics("t").build(), "needs a deserializer"),
            (lambda b: b.set_topics("t").set_topic_pattern("t"), "topics, a pattern or partitions: set only one"),
            (lambda b: b.set_topics(), "at least one topic"),
            (lambda b: b.set_value_only_deserializer(str), "SimpleStringSchema"),
            (lambda b: b.set_deserializer(SimpleStringSchema()), "set_value_only_deserializer"),
        ],
    )
    def test_build_names_the_missing_setting(self, build, message):
        with pytest.raises(Exception, match=message):
            build(KafkaSource.builder())

    def test_committed_offsets_need_a_group(self, kafka):
        builder = building(kafka, "t").set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
        with pytest.raises(Exception, match="needs a group: set_group_id"):
            builder.build()

    def test_credentials_that_name_no_user_are_not_shown(self, kafka):
        source = building(kafka, "t").set_property("sasl.jaas.config", "user and hunter2").build()
        with pytest.raises(KafkaError, match=r"sasl\.jaas\.config names no user") as raised:
            source.start(1)
        assert "hunter2" not in str(raised.value)
        assert "hunter2" not in repr(source._client)

    def test_a_source_never_shows_its_password(self, kafka):
        builder = building(kafka, "t").set_properties(
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        )
        builder.set_property("sasl.username", "me").set_property("sasl.password", "hunter2")
        source = builder.set_property("socket.timeout.ms", "1000").build()
        with pytest.raises(KafkaError) as raised:
            source.start(1)
        source.close()
        assert all("hunter2" not in text for text in (str(raised.value), repr(source), repr(source._client)))
