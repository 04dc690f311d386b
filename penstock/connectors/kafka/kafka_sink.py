"""KafkaSink: sends records as messages, in one transaction per epoch or directly from the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.kafka.client import KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.cluster import Cluster, Subscription
from penstock.connectors.kafka.java_properties import to_librdkafka
from penstock.connectors.kafka.serializing import KafkaRecordSerializationSchema, Message
from penstock.connectors.kafka.transactions import KafkaTransactions, TransactionFenced
from penstock.connectors.preprocessing import StreamTransformer, SupportsPreprocessing
from penstock.connectors.sink import AT_LEAST_ONCE, EXACTLY_ONCE, Sink, SinkWriter
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

_CHUNK = 256 << 10
"""Bytes of messages per chunk of the write-ahead log."""
_POLL = 1000
"""Messages between two polls for delivery errors."""
_ATTEMPTS = 3
"""Attempts at a transaction that is fenced by another producer."""
_DEFAULTS = {
    "partitioner": "murmur2_random",
    # Retries of librdkafka after a lost connection neither duplicate nor reorder messages.
    "enable.idempotence": True,
}


class KafkaSink(Sink, SupportsPreprocessing):
    """Write records to Kafka topics. Create one with ``KafkaSink.builder()``."""

    concurrent_commit = True

    def __init__(
        self, client: KafkaClient, serializer: KafkaRecordSerializationSchema, exactly_once: bool, prefix: str
    ) -> None:
        self._client = client
        self._serializer = serializer
        self._exactly_once = exactly_once
        self._prefix = prefix
        self._transactions: dict[str, KafkaTransactions] = {}
        """By uid, in the driver."""
        if exactly_once:
            self.guarantee = EXACTLY_ONCE
            self.why = "the driver sends each epoch in one transaction that also stores the epoch number"
        else:
            self.guarantee = AT_LEAST_ONCE
            self.why = "tasks send records immediately, and again if their epoch is replayed"

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder."""
        return KafkaSinkBuilder()

    def start(self, context: CommitContext) -> None:
        """Raise if a topic known in advance does not exist or cannot be looked up."""
        cluster = Cluster(self._client)
        try:
            cluster.partitions(Subscription(topics=self._serializer.topics))
        finally:
            cluster.close()

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the stream is not transformed."""
        return None

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        if self._exactly_once:
            return _PutAside(self._serializer, context)
        return _SentAtOnce(self._serializer, self._client)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return self._commit(commits, context)
            except TransactionFenced:
                # An older driver of this job that woke up, unaware of its successor, can also be the cause.
                if not attempts_left:
                    raise

    def _commit(self, commits: list[Commit], context: CommitContext) -> None:
        lineage, epoch = commits[0].lineage, commits[0].epoch
        messages = _messages(commits, context)
        first = next(messages, None)
        if first is None:
            return
        # Kept only while commits succeed: after an error the producer's state is unknown.
        transactions = self._transactions.pop(context.uid, None)
        if transactions is None or commits[0].again:
            transactions = KafkaTransactions(self._client, f"{self._prefix}-{context.uid}")
            # Another driver could have sent the epoch, or this one before an error.
            if transactions.holds(first.topic, lineage, epoch):
                self._transactions[context.uid] = transactions
                return
        transactions.send(chain([first], messages), first.topic, lineage, epoch)
        self._transactions[context.uid] = transactions

    def close(self, context: CommitContext) -> None:
        transactions = self._transactions.pop(context.uid, None)
        if transactions is not None:
            transactions.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transactions": {}}


def _messages(commits: list[Commit], context: CommitContext) -> Iterator[Message]:
    for commit in commits:
        for chunk in written_ahead(commit, context):
            yield from _decode(chunk)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Message]).decode


class _PutAside(SinkWriter):
    def __init__(self, serializer: KafkaRecordSerializationSchema, context: RuntimeContext) -> None:
        self._serialize = serializer.serialize
        self._log = WriteAhead(context)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._log.begin(epoch)
        self._waiting: list[Message] = []
        self._size = 0

    def write(self, value: Any) -> None:
        message = self._serialize(value)
        self._waiting.append(message)
        self._size += len(message.value or b"") + 50
        if self._size > _CHUNK:
            self._add()

    def prepare_commit(self) -> bytes | None:
        if self._waiting:
            self._add()
        return self._log.seal()

    def _add(self) -> None:
        self._log.add(_encode(self._waiting))
        self._waiting, self._size = [], 0


class _SentAtOnce(SinkWriter):
    """Sends records as they arrive. The epoch is complete once Kafka has acknowledged all of them."""

    def __init__(self, serializer: KafkaRecordSerializationSchema, client: KafkaClient) -> None:
        self._serialize = serializer.serialize
        self._client = client
        self._confluent = confluent_kafka()
        self._refused: list[str] = []
        # Only failures are reported: a callback per message would cost as much as sending it.
        reports = {"delivery.report.only.error": True, "on_delivery": self._delivered}
        self._producer = client.producer(reports, _DEFAULTS)
        self._sent = 0

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._refused.clear()

    def write(self, value: Any) -> None:
        topic, key, data = self._serialize(value)
        while True:
            try:
                self._producer.produce(topic, data, key)
                break
            except BufferError:
                # The queue of librdkafka is full.
                self._producer.poll(0.1)
            except self._confluent.KafkaException as error:
                raise self._client.failed(f"send a message to topic '{topic}'", error) from None
        self._sent += 1
        if self._sent % _POLL == 0:
            self._producer.poll(0)

    def prepare_commit(self) -> bytes | None:
        # Terminates: librdkafka drops a message after message.timeout.ms.
        self._producer.flush()
        if self._refused:
            raise KafkaError(
                f"KafkaSink at {self._client.servers}: {len(self._refused)} messages were not delivered, the first "
                f"{self._refused[0]}.",
                fix="Check that the topic exists and accepts messages of this size, and that the brokers are running.",
            )
        return None

    def close(self) -> None:
        self._producer.purge()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(f"for topic '{message.topic()}': {self._client.hide(error.str())}")


class KafkaSinkBuilder:
    """Builder of a ``KafkaSink``.

    Servers and a record serializer are required; EXACTLY_ONCE also requires a transactional id prefix.
    """

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers to connect to, as ``host:port,...``."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the guarantee. The default, NONE, is at-least-once in this sink."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise PenstockError(f"set_delivery_guarantee needs a DeliveryGuarantee, not {delivery_guarantee!r}.")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set a prefix that is unique to the job and never changes: with it, a new driver fences off an older one."""
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set how records become messages."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise PenstockError(
                f"set_record_serializer needs a KafkaRecordSerializationSchema, such as one built with "
                f"KafkaRecordSerializationSchema.builder(), not {type(record_serializer).__name__}."
            )
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of librdkafka or of the Java client, whose properties get librdkafka's names."""
        self._properties[key] = str(value)
        return self

    def build(self) -> KafkaSink:
        """Return the sink.

        Raises:
            PenstockError: A required setting is missing, or librdkafka rejects the properties.
        """
        if "bootstrap.servers" not in self._properties:
            raise PenstockError("A KafkaSink needs servers: set_bootstrap_servers('host:9092').")
        if self._serializer is None:
            raise PenstockError("A KafkaSink needs set_record_serializer(KafkaRecordSerializationSchema.builder()...).")
        exactly_once = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if exactly_once and not self._prefix:
            raise PenstockError(
                "A KafkaSink with DeliveryGuarantee.EXACTLY_ONCE needs set_transactional_id_prefix('name'). The prefix "
                "must be unique to the job and never change."
            )
        client = KafkaClient("KafkaSink", to_librdkafka("KafkaSink", self._properties, consumer=False))
        client.check("Producer")
        return KafkaSink(client, self._serializer, exactly_once, self._prefix or "")
