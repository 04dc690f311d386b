"""DynamicKafkaSource reads the streams that a metadata service maps to the topics of one cluster."""

import re
from typing import Any

import pytest

from penstock.common import SimpleStringSchema
from penstock.connectors.kafka.kafka_source import KafkaSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.dynamic_kafka import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaMetadataService,
    KafkaRecordDeserializationSchema,
    KafkaStreamSetSubscriber,
    KafkaStreamSubscriber,
    SingleClusterTopicMetadataService,
    StreamPatternSubscriber,
)
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def building(kafka: Any, **properties: str) -> DynamicKafkaSourceBuilder:
    service = SingleClusterTopicMetadataService("mine", {"bootstrap.servers": kafka.servers} | properties)
    builder = DynamicKafkaSource.builder().set_kafka_metadata_service(service)
    return builder.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())


def read(source: KafkaSource) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return sorted(JobHarness(env.from_source(source, source_name="streams")).run())


@pytest.fixture
def topics(kafka: Any) -> tuple[str, str]:
    """Two topics with one record each."""
    first, second = kafka.topic(), kafka.topic()
    kafka.send(first, "1")
    kafka.send(second, "2")
    return first, second


class TestStreams:
    def test_streams_are_the_topics_of_their_ids(self, kafka: Any, topics: tuple[str, str]) -> None:
        assert read(building(kafka).set_stream_ids({topics[0]}).build()) == ["1"]
        assert read(building(kafka).set_stream_ids(set(topics)).build()) == ["1", "2"]

    def test_a_pattern_matches_full_ids(self, kafka: Any, topics: tuple[str, str]) -> None:
        pattern = "|".join(map(re.escape, topics))
        assert read(building(kafka).set_stream_pattern(pattern).build()) == ["1", "2"]
        assert read(building(kafka).set_stream_pattern(re.escape(topics[1])).build()) == ["2"]

    def test_subscribers_choose_streams(self, kafka: Any, topics: tuple[str, str]) -> None:
        chosen = KafkaStreamSetSubscriber({topics[1]})
        assert read(building(kafka).set_kafka_stream_subscriber(chosen).build()) == ["2"]
        pattern = StreamPatternSubscriber(re.escape(topics[0]))
        assert read(building(kafka).set_kafka_stream_subscriber(pattern).build()) == ["1"]

    def test_records_start_at_the_chosen_offsets(self, kafka: Any, topics: tuple[str, str]) -> None:
        source = building(kafka).set_stream_ids({topics[0]})
        assert read(source.set_starting_offsets(KafkaOffsetsInitializer.latest()).build()) == []

    def test_a_deserializer_receives_the_whole_message(self, kafka: Any, topics: tuple[str, str]) -> None:
        class Topic(KafkaRecordDeserializationSchema):
            def deserialize(self, record: Any) -> str:
                return f"{record.topic} {record.offset}"

        source = building(kafka).set_stream_ids({topics[0]}).set_deserializer(Topic()).build()
        assert read(source) == [f"{topics[0]} 0"]


class TestProperties:
    def test_properties_of_the_source_precede_those_of_the_service(self, kafka: Any, topics: tuple[str, str]) -> None:
        source = building(kafka, **{"client.id": "service", "group.id": "service"}).set_stream_ids({topics[0]})
        built = source.set_client_id_prefix("source").set_group_id("source").build()
        assert {"client.id": "source", "group.id": "source"}.items() <= built._client._properties.items()

    def test_the_discovery_interval_is_that_of_partitions(self, kafka: Any, topics: tuple[str, str]) -> None:
        properties = {
            "stream-metadata-discovery-interval-ms": "7000",
            "stream-metadata-discovery-failure-threshold": "3",
        }
        source = building(kafka).set_stream_ids({topics[0]}).set_properties(properties)
        assert source.build()._discovery_s == 7


class TestMistakes:
    def test_a_source_without_a_metadata_service_is_refused(self) -> None:
        with pytest.raises(PenstockError, match=r"needs a metadata service.*set_kafka_metadata_service"):
            DynamicKafkaSource.builder().set_stream_ids({"a"}).build()

    def test_another_metadata_service_is_refused(self) -> None:
        with pytest.raises(PenstockError, match=r"of type KafkaMetadataService.*ds\.union"):
            DynamicKafkaSource.builder().set_kafka_metadata_service(KafkaMetadataService())

    def test_another_subscriber_is_refused(self) -> None:
        with pytest.raises(PenstockError, match=r"of type KafkaStreamSubscriber.*StreamPatternSubscriber"):
            DynamicKafkaSource.builder().set_kafka_stream_subscriber(KafkaStreamSubscriber())

    def test_both_ids_and_a_pattern_are_refused(self) -> None:
        with pytest.raises(PenstockError, match="set only one of them"):
            DynamicKafkaSource.builder().set_stream_ids({"a"}).set_stream_pattern("b")
