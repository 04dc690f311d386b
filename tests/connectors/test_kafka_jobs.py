"""Jobs from Kafka to Kafka, against librdkafka's mock brokers."""

import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.serialization import JsonSchema, SimpleStringSchema
from penstock.connectors.dead_letters import UnreadableRecord
from penstock.connectors.kafka.reader import OffsetGone
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness


def source(kafka, topic, schema=None, bounded=True):
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic)
    builder.set_value_only_deserializer(schema or SimpleStringSchema())
    return (builder.set_bounded(KafkaOffsetsInitializer.latest()) if bounded else builder).build()


def sink(kafka, topic):
    serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(serializer.build())
    return (
        builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"to-{topic}")
        .build()
    )


def numbered(word):
    """Format a (word, count) pair."""
    return f"{word[0]} {word[1]}"


def test_word_counts_are_exactly_once_from_topic_to_topic_across_crashes(kafka):
    words, counts = kafka.topic(3), kafka.topic()
    for number in range(30):
        kafka.send(words, f"word{number % 4}", partition=number % 3)
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(source(kafka, words), WatermarkStrategy.no_watermarks(), "words").uid("words")
    stream = stream.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    stream.map(numbered).sink_to(sink(kafka, counts)).uid("counts")
    with JobHarness(env, parallelism=2) as harness:
        harness.epoch(7)
        harness.crash_at("level1.reported")
        harness.epoch(7)
        harness.crash_at("driver.collected")
        harness.epoch(7)
        harness.run(7)
    shown = [message.value().decode() for message in kafka.messages(counts)]
    assert sorted(shown) == sorted(f"word{w} {n}" for w, total in enumerate((8, 8, 7, 7)) for n in range(1, total + 1))


def test_event_time_is_the_kafka_timestamp_by_default(kafka):
    topic = kafka.topic(2)
    for partition, timestamp in [(0, 1000), (1, 2000), (0, 11_000), (1, 12_000), (0, 3000)]:
        kafka.send(topic, "x", partition=partition, timestamp=timestamp)
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    stream = env.from_source(source(kafka, topic), strategy, "in")
    windows = (
        stream.map(lambda x: (x, 1)).key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    )
    with JobHarness(windows.reduce(lambda a, b: (a[0], a[1] + b[1]))) as harness:
        assert sorted(harness.run()) == [("x", 2), ("x", 3)]


def test_an_unbounded_job_reads_later_records(kafka):
    topic = kafka.topic()
    kafka.send(topic, "a")
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(env.from_source(source(kafka, topic, bounded=False), None, "in")) as harness:
        harness.epoch()
        kafka.send(topic, "b")
        harness.epoch()
        assert harness.output == ["a", "b"]


def test_an_undecodable_record_becomes_a_dead_letter(kafka):
    topic = kafka.topic()
    kafka.send(topic, '{"n": 1}', "nonsense", '{"n": 3}', timestamp=5)
    broken = OutputTag("broken")
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(source(kafka, topic, JsonSchema()), strategy, "in", dead_letters=broken)
    letters = stream.get_side_output(broken).map(lambda letter: (letter.split, letter.position, letter.raw))
    with JobHarness(stream.union(letters)) as harness:
        harness.run()
    assert harness.output == [{"n": 1}, {"n": 3}, (f"{topic}/0", "offset 1", b"nonsense")]


def test_an_undecodable_record_fails_the_job_without_dead_letters(kafka):
    topic = kafka.topic()
    kafka.send(topic, '{"n": 1}', "nonsense")
    env = StreamExecutionEnvironment.get_execution_environment()
    with (
        JobHarness(env.from_source(source(kafka, topic, JsonSchema()), None, "in")) as harness,
        pytest.raises(UnreadableRecord, match=rf"(?s)Source 'in' .*{topic}/0, offset 1: .*The record: nonsense"),
    ):
        harness.run()


def test_records_removed_by_retention_fail_the_job(kafka):
    topic = kafka.topic()
    kafka.send(topic, *"abcd")
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(env.from_source(source(kafka, topic), None, "in").uid("in")) as harness:
        harness.epoch(1)
        kafka.delete_records(topic, 0, before=3)
        wanted = rf"Source 'in' \(uid 'in'\): topic '{topic}', partition 0: offset 1 no longer .* holds offsets 3 to 3"
        with pytest.raises(OffsetGone, match=wanted):
            harness.epoch(1)


def test_a_job_without_watermarks_has_no_timestamps(kafka):
    topic = kafka.topic()
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(source(kafka, topic), WatermarkStrategy.no_watermarks(), "in")
    with JobHarness(stream) as harness:
        assert not harness._graph.timed
    stream = env.from_source(source(kafka, topic), WatermarkStrategy.for_monotonous_timestamps(), "in")
    with JobHarness(stream) as harness:
        assert harness._graph.timed
