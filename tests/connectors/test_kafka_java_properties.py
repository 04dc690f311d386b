"""Properties of Kafka's Java client are translated for librdkafka, or left out and noted."""

from typing import Any

import pytest

from penstock.common import Row, SimpleStringSchema, Types, without_effect
from penstock.common.without_effect import Noted
from penstock.connectors.kafka.client import KafkaError
from penstock.connectors.kafka.java_properties import to_librdkafka
from penstock.connectors.kafka.kafka_sink import KafkaSink
from penstock.connectors.kafka.kafka_source import KafkaSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.dynamic_kafka import DynamicKafkaSource, SingleClusterTopicMetadataService
from penstock.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaOffsetsInitializer,
    Semantic,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.errors import PenstockError
from penstock.testing import JobHarness

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="p\\"q=1;";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='ann' password=secret;"
KERBEROS = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="client@REALM";'
)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    fresh = Noted()
    monkeypatch.setattr(without_effect, "_program", fresh)
    return fresh


@pytest.mark.parametrize(
    ("given", "translated"),
    [
        ({"fetch.max.wait.ms": "100"}, {"fetch.wait.max.ms": "100"}),
        ({"max.request.size": "1000"}, {"message.max.bytes": "1000"}),
        ({"receive.buffer.bytes": "1"}, {"socket.receive.buffer.bytes": "1"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"request.timeout.ms": "5"}, {"socket.timeout.ms": "5"}),
        ({"socket.timeout.ms": "7", "request.timeout.ms": "5"}, {"socket.timeout.ms": "7"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"sasl.jaas.config": PLAIN}, {"sasl.username": "ann", "sasl.password": 'p"q=1;'}),
        ({"sasl.jaas.config": SCRAM}, {"sasl.username": "ann", "sasl.password": "secret"}),
        (
            {"sasl.jaas.config": KERBEROS},
            {"sasl.kerberos.keytab": "/etc/kafka.keytab", "sasl.kerberos.principal": "client@REALM"},
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca"}, {"ssl.ca.location": "/ca"}),
        ({"ssl.truststore.certificates": "PEM"}, {"ssl.ca.pem": "PEM"}),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.type": "pem", "ssl.keystore.location": "/k.pem"},
            {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem"},
        ),
        ({"fetch.min.bytes": "1", "isolation.level": "x"}, {"fetch.min.bytes": "1", "isolation.level": "x"}),
    ],
    ids=str,
)
def test_a_property_gets_the_name_and_value_that_librdkafka_knows(
    given: dict[str, str], translated: dict[str, str], noted: Noted
) -> None:
    assert to_librdkafka("KafkaSource", given, consumer=True) == translated
    assert noted.paragraph() == ""


@pytest.mark.parametrize(
    "name", ["max.poll.records", "partition.assignment.strategy", "interceptor.classes", "metrics.num.samples"]
)
def test_a_property_without_counterpart_is_left_out_and_noted(name: str, noted: Noted) -> None:
    assert to_librdkafka("KafkaSource", {name: "1"}, consumer=True) == {}
    assert f"KafkaSource property {name}" in noted.paragraph()


def test_the_request_timeout_of_a_producer_keeps_its_name() -> None:
    given = {"request.timeout.ms": "5"}
    assert to_librdkafka("KafkaSink", given, consumer=False) == given


@pytest.mark.parametrize(("store", "pem"), [("truststore", "ssl.ca.location"), ("keystore", "ssl.key.location")])
def test_a_java_key_store_is_refused(store: str, pem: str) -> None:
    given = {f"ssl.{store}.type": "JKS", f"ssl.{store}.location": "/a.jks"}
    with pytest.raises(PenstockError, match=f"cannot read.*{pem}"):
        to_librdkafka("KafkaSource", given, consumer=True)


def source(**properties: str) -> Any:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("a").set_group_id("g")
    for name, value in properties.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.set_value_only_deserializer(SimpleStringSchema()).build()


def test_librdkafka_accepts_the_translated_properties(noted: Noted) -> None:
    source(max_poll_records="10", fetch_max_wait_ms="100", request_timeout_ms="3000")
    source(sasl_jaas_config=PLAIN, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    assert "max.poll.records" in noted.paragraph()


def test_credentials_without_a_user_fail_when_the_job_connects() -> None:
    made = source(sasl_jaas_config="x", security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    with pytest.raises(KafkaError, match=r"sasl\.jaas\.config names no user.*sasl\.username"):
        made.start(1)


class TestDynamicKafkaSource:
    def service(self, kafka: Any) -> SingleClusterTopicMetadataService:
        return SingleClusterTopicMetadataService("one", {"bootstrap.servers": kafka.servers})

    @pytest.mark.parametrize("by_pattern", [False, True])
    def test_a_dynamic_source_reads_the_topics_of_its_service(self, kafka: Any, by_pattern: bool) -> None:
        topic = kafka.topic()
        kafka.send(topic, "a", "b")
        builder = DynamicKafkaSource.builder().set_kafka_metadata_service(self.service(kafka))
        builder = builder.set_stream_pattern(topic) if by_pattern else builder.set_stream_ids({topic})
        builder.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_properties({"fetch.max.wait.ms": "10"})
        builder.set_bounded(KafkaOffsetsInitializer.latest()).set_value_only_deserializer(SimpleStringSchema())
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(env.from_source(builder.set_group_id("g").build())) as job:
            assert job.run() == ["a", "b"]

    def test_a_dynamic_source_needs_a_service_and_streams(self, kafka: Any) -> None:
        builder = DynamicKafkaSource.builder()
        with pytest.raises(PenstockError, match="needs a metadata service"):
            builder.build()
        with pytest.raises(PenstockError, match="needs topics to read"):
            builder.set_kafka_metadata_service(self.service(kafka)).build()


def test_invalid_messages_of_rows_are_left_out_if_errors_are_ignored(kafka: Any) -> None:
    topic = kafka.topic()
    kafka.send(topic, '{"id": 1}', "broken", '{"id": "x"}', '{"id": 2}')
    rows = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["id"], [Types.INT()]))
    source = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic)
    source = source.set_value_only_deserializer(rows.ignore_parse_errors().build())
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(source.set_bounded(KafkaOffsetsInitializer.latest()).build())
    assert stream.get_type() == Types.ROW_NAMED(["id"], [Types.INT()])
    with JobHarness(stream) as job:
        assert job.run() == [Row(id=1), Row(id=None), Row(id=2)]


class TestFlinkKafkaConsumer:
    def consumer(self, **properties: str) -> FlinkKafkaConsumer:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        return FlinkKafkaConsumer("a", SimpleStringSchema(), {"bootstrap.servers": "localhost:1", **given})

    def test_a_flink_kafka_consumer_becomes_a_source_of_the_program(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.add_source(self.consumer(group_id="g"), "orders")
        assert stream.get_name() == "orders"
        assert isinstance(stream._node.source.origin, KafkaSource)  # type: ignore[union-attr]

    def test_a_flink_kafka_consumer_starts_where_the_program_says(self) -> None:
        consumer = self.consumer(group_id="g")
        assert consumer.to_source()._starting.kind == "committed"
        assert consumer.set_start_from_earliest().to_source()._starting.kind == "earliest"
        assert consumer.set_start_from_latest().to_source()._starting.kind == "latest"
        assert consumer.set_start_from_timestamp(7).to_source()._starting.kind == "timestamp"
        assert consumer.set_start_from_group_offsets().to_source()._starting.kind == "committed"
        assert self.consumer().to_source()._starting.kind == "latest"
        assert self.consumer(auto_offset_reset="earliest").to_source()._starting.kind == "earliest"

    def test_the_properties_of_a_flink_kafka_consumer_are_those_of_its_source(self) -> None:
        consumer = self.consumer(group_id="g", **{"flink.partition-discovery.interval-millis": "5000"})
        assert consumer.to_source()._discovery_s == 5
        assert consumer.to_source()._commits
        assert not consumer.set_commit_offsets_on_checkpoints(False).to_source()._commits


class TestFlinkKafkaProducer:
    def test_a_flink_kafka_producer_becomes_a_sink_of_the_program(self) -> None:
        producer = FlinkKafkaProducer("t", SimpleStringSchema(), {"bootstrap.servers": "localhost:1"})
        env = StreamExecutionEnvironment.get_execution_environment()
        sink = env.from_collection(["a"]).add_sink(producer)
        assert isinstance(sink._node.operator.sink, KafkaSink)  # type: ignore[union-attr]

    def test_exactly_once_needs_a_transactional_id(self) -> None:
        given = {"bootstrap.servers": "localhost:1"}
        producer = FlinkKafkaProducer("t", SimpleStringSchema(), given, semantic=Semantic.EXACTLY_ONCE)
        with pytest.raises(PenstockError, match="set_transactional_id_prefix"):
            producer.to_sink()
        given["transactional.id"] = "orders"
        FlinkKafkaProducer("t", SimpleStringSchema(), given, semantic=Semantic.EXACTLY_ONCE).to_sink()

    def test_calls_that_would_lose_messages_are_refused(self) -> None:
        producer = FlinkKafkaProducer("t", SimpleStringSchema(), {"bootstrap.servers": "localhost:1"})
        producer.set_log_failures_only(False)
        with pytest.raises(PenstockError, match="would lose messages"):
            producer.set_log_failures_only(True)
        with pytest.raises(PenstockError, match="event time"):
            producer.set_write_timestamp_to_kafka(True)
