"""KafkaSink against librdkafka's mock brokers: each record is written once, as far as mocks show, after any crash."""

import pickle

import pytest

from penstock.common.serialization import JsonSchema, SerializationSchema, SimpleStringSchema
from penstock.connectors.kafka.client import KafkaError
from penstock.connectors.kafka.transactions import KafkaTransactions, TransactionFenced
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaTopicSelector
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness
from penstock.testing.harness import SimulatedCrash

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28
"""Request types of Kafka's protocol."""
MESSAGE_TOO_LARGE, INVALID_PRODUCER_EPOCH = 10, 47
"""Error codes of Kafka's protocol."""


class Key(SerializationSchema):
    def serialize(self, value):
        return str(value % 3).encode()


def to_topic(topic, key=None):
    builder = KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(JsonSchema())
    return (builder if key is None else builder.set_key_serialization_schema(key)).build()


def sink_to(kafka, serializer, guarantee=DeliveryGuarantee.EXACTLY_ONCE):
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(serializer)
    return builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix("tests").build()


def job(sink, records=range(40), **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(records).uid("numbers").rebalance().sink_to(sink).uid("kafka")
    return JobHarness(env, **options)


def numbers(kafka, topic):
    return sorted(int(value) for value in kafka.values(topic))


@pytest.fixture
def dies(monkeypatch):
    """`dies.append("before")` kills the driver before the next transaction, `"after"` after its commit."""
    instants = []
    send = KafkaTransactions.send

    def dying(self, *arguments):
        instant = instants.pop() if instants else None
        if instant == "before":
            raise SimulatedCrash
        send(self, *arguments)
        if instant == "after":
            raise SimulatedCrash

    monkeypatch.setattr(KafkaTransactions, "send", dying)
    return instants


POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class TestExactlyOnce:
    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize(("parallelism", "late"), [(1, False), (3, False), (3, True)])
    def test_every_record_is_written_once_after_a_crash_at_any_point(self, kafka, point, parallelism, late):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic)), parallelism=parallelism, commits_late=late) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert numbers(kafka, topic) == list(range(40))

    @pytest.mark.parametrize("instant", ["before", "after"])
    def test_every_record_is_written_once_if_the_driver_dies_around_the_transaction(self, kafka, dies, instant):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic))) as harness:
            harness.epoch(10)
            dies.append(instant)
            harness.epoch(10)
            assert not dies
            harness.run(10)
        assert numbers(kafka, topic) == list(range(40))

    def test_records_become_visible_only_after_the_checkpoint(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic))) as harness:
            harness.crash_at("driver.collected")
            harness.epoch(10)
            assert kafka.values(topic) == []
            harness.epoch(10)
            assert len(kafka.values(topic)) == 10

    def test_one_transaction_holds_the_records_of_all_subtasks_and_the_epoch(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic)), parallelism=3) as harness:
            harness.epoch(10)
            kafka.requests()
            harness.epoch(10)
        requests = [
            each for each in kafka.requests() if each in (INIT, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END)
        ]
        assert sorted(requests) == [ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS]
        assert requests[-1] == END

    def test_an_epoch_larger_than_a_chunk_arrives_completely(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic)), range(20_000)) as harness:
            harness.run()
        assert numbers(kafka, topic) == list(range(20_000))

    def test_an_epoch_without_records_opens_no_transaction(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic)), []) as harness:
            kafka.requests()
            harness.epoch()
        assert INIT not in kafka.requests()

    def test_a_driver_fenced_by_an_older_one_retries(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic))) as harness:
            harness.epoch(10)
            kafka.refuse(ADD_PARTITIONS, INVALID_PRODUCER_EPOCH)
            harness.epoch(10)
            assert numbers(kafka, topic) == list(range(20))

    def test_a_persistent_fencing_error_explains_shared_prefixes(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic))) as harness:
            harness.epoch(10)
            kafka.refuse(ADD_PARTITIONS, *[INVALID_PRODUCER_EPOCH] * 3)
            with pytest.raises(TransactionFenced, match=r"id 'tests-kafka'.*different prefix for each job") as raised:
                harness.epoch(10)
        assert not raised.value.retryable

    def test_a_rejected_message_fails_the_job_and_a_restart_sends_the_complete_epoch(self, kafka):
        topic = kafka.topic()
        sink = sink_to(kafka, to_topic(topic))
        first = job(sink)
        kafka.refuse(PRODUCE, MESSAGE_TOO_LARGE)
        with pytest.raises(KafkaError, match=r"cannot commit the transaction of epoch 1"):
            first.epoch(10)
        with job(sink_to(kafka, to_topic(topic)), storage=first.storage) as second:
            second.epoch(10)
        assert numbers(kafka, topic) == list(range(20))


class TestAtLeastOnce:
    @pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
    def test_every_record_is_written_when_its_epoch_completes(self, kafka, guarantee):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic), guarantee), parallelism=2) as harness:
            harness.epoch(10)
            assert numbers(kafka, topic) == list(range(10))

    def test_a_replayed_epoch_is_written_again(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic), DeliveryGuarantee.AT_LEAST_ONCE), range(10)) as harness:
            harness.crash_at("driver.collected")
            harness.epoch()
            harness.epoch()
        assert numbers(kafka, topic) == sorted([*range(10), *range(10)])

    def test_a_rejected_message_fails_the_epoch(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic), DeliveryGuarantee.AT_LEAST_ONCE), [1]) as harness:
            kafka.refuse(PRODUCE, MESSAGE_TOO_LARGE)
            with pytest.raises(UserFunctionFailed, match=rf"(?s)'kafka'.*1 messages were not .*'{topic}': .*too large"):
                harness.epoch()


class TestMessages:
    def test_messages_have_the_key_of_the_key_schema(self, kafka):
        topic = kafka.topic()
        with job(sink_to(kafka, to_topic(topic, Key())), range(5)) as harness:
            harness.run()
        found = {(message.key(), message.value()) for message in kafka.messages(topic)}
        assert found == {(b"0", b"0"), (b"1", b"1"), (b"2", b"2"), (b"0", b"3"), (b"1", b"4")}

    def test_messages_use_the_partitioner_of_the_java_client(self, kafka):
        topic = kafka.topic(4)
        serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
        serializer.set_key_serialization_schema(SimpleStringSchema())
        serializer.set_value_serialization_schema(SimpleStringSchema())
        with job(sink_to(kafka, serializer.build()), ["a", "b", "c", "kafka"]) as harness:
            harness.run()
        # murmur2 of the key, without its sign, modulo 4.
        assert {m.value().decode(): m.partition() for m in kafka.messages(topic, 4)} == {
            text: (murmur2(text.encode()) & 0x7FFFFFFF) % 4 for text in ("a", "b", "c", "kafka")
        }

    def test_a_function_chooses_the_topic(self, kafka):
        even, odd = kafka.topic(), kafka.topic()
        serializer = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(JsonSchema())
        serializer.set_topic_selector(lambda number: odd if number % 2 else even)
        with job(sink_to(kafka, serializer.build()), range(6)) as harness:
            harness.run()
        assert [numbers(kafka, even), numbers(kafka, odd)] == [[0, 2, 4], [1, 3, 5]]

    def test_a_topic_selector_chooses_the_topic(self, kafka):
        class Always(KafkaTopicSelector):
            def __init__(self, topic):
                self.topic = topic

            def apply(self, data):
                return self.topic

        topic = kafka.topic()
        serializer = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(JsonSchema())
        with job(sink_to(kafka, serializer.set_topic_selector(Always(topic)).build()), [1]) as harness:
            harness.run()
        assert numbers(kafka, topic) == [1]


class TestStarting:
    @pytest.mark.parametrize("guarantee", DeliveryGuarantee)
    def test_a_missing_topic_is_reported_before_a_record_is_read(self, kafka, guarantee):
        sink = sink_to(kafka, to_topic("another-missing-topic"), guarantee)
        with pytest.raises(
            KafkaError, match=r"topic 'another-missing-topic' does not exist at .* Create it, or correct the name\."
        ):
            job(sink)

    def test_a_cluster_that_does_not_respond_is_named(self):
        builder = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1").set_record_serializer(to_topic("t"))
        with pytest.raises(KafkaError, match=r"KafkaSink at 127\.0\.0\.1:1 cannot list the topics"):
            job(builder.set_property("socket.timeout.ms", "1000").build())


class TestBuilding:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda b: b.build(), "needs servers: set_bootstrap_servers"),
            (lambda b: b.set_bootstrap_servers("h:1").build(), "needs set_record_serializer"),
            (
                lambda b: (
                    b.set_bootstrap_servers("h:1")
                    .set_record_serializer(to_topic("t"))
                    .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
                    .build()
                ),
                "needs set_transactional_id_prefix",
            ),
            (lambda b: b.set_record_serializer(SimpleStringSchema()), r"KafkaRecordSerializationSchema\.builder\(\)"),
            (lambda b: b.set_delivery_guarantee("exactly once"), "needs a DeliveryGuarantee"),
            (lambda b: KafkaRecordSerializationSchema.builder().set_topic("t").build(), "needs a value schema"),
            (lambda b: KafkaRecordSerializationSchema.builder().build(), r"needs a topic: set_topic"),
            (lambda b: KafkaRecordSerializationSchema.builder().set_topic_selector("t"), "a function of a record"),
        ],
    )
    def test_build_names_the_missing_setting(self, build, message):
        with pytest.raises(Exception, match=message):
            build(KafkaSink.builder())

    def test_a_sink_reports_its_guarantee_and_the_reason(self, kafka):
        exactly = sink_to(kafka, to_topic("t"))
        at_least = sink_to(kafka, to_topic("t"), DeliveryGuarantee.AT_LEAST_ONCE)
        assert (exactly.guarantee, at_least.guarantee) == ("exactly-once", "at-least-once")
        assert "one transaction" in exactly.why

    def test_a_sink_never_shows_its_password(self, kafka):
        builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(to_topic("t"))
        builder.set_property("security.protocol", "sasl_plaintext").set_property("sasl.mechanism", "PLAIN")
        sink = builder.set_property("sasl.username", "me").set_property("sasl.password", "hunter2").build()
        assert "hunter2" not in repr(sink) + repr(sink._client) + sink.why

    def test_a_sink_can_be_pickled(self, kafka):
        sink = pickle.loads(pickle.dumps(sink_to(kafka, to_topic("t"))))
        assert sink.guarantee == "exactly-once"


def murmur2(data):
    """Return the 32-bit hash of Kafka's Java client."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for start in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
