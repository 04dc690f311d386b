"""Kafka on Spark, with mock brokers: planned in a process next to the driver, read in tasks, written by the driver."""

import json
from typing import Any

import pytest

from penstock.common import JsonSchema, SimpleStringSchema, WatermarkStrategy
from penstock.datastream.connectors import DeliveryGuarantee, DiscardingSink
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark


def source(kafka: Any, topic: str) -> KafkaSource:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic).set_group_id(topic)
    builder.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    return builder.build()


def test_words_are_counted_from_topic_to_topic_exactly_once(make_env: Any, kafka: Any) -> None:
    words, counts = kafka.topic(3), kafka.topic()
    for number in range(60):
        kafka.send(words, f"word{number % 4}", partition=number % 3)
    serializer = KafkaRecordSerializationSchema.builder().set_topic(counts)
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.servers)
    sink.set_record_serializer(serializer.set_value_serialization_schema(JsonSchema()).build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(counts)

    env = make_env(parallelism=2, records=20)
    stream = env.from_source(source(kafka, words), WatermarkStrategy.no_watermarks(), "words").uid("words")
    counted = stream.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counted.sink_to(sink.build()).uid("counts")
    env.execute("kafka")

    found = sorted(json.loads(value) for value in kafka.values(counts))
    assert found == sorted([f"word{w}", n] for w in range(4) for n in range(1, 16))
    assert sum(kafka.committed(words, words, partition) > 0 for partition in range(3)) > 0


def test_a_missing_topic_is_reported_before_anything_is_read(make_env: Any, kafka: Any) -> None:
    env = make_env(parallelism=1)
    env.from_source(source(kafka, "never-made"), None, "orders").sink_to(DiscardingSink())
    with pytest.raises(PenstockError, match=r"(?s)'orders'.*topic 'never-made' does not exist at .*Create it"):
        env.execute("kafka")
