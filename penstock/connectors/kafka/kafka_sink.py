"""KafkaSink: records as messages, in one transaction for each epoch, or sent by the tasks at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.kafka.client import KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.cluster import Cluster, Subscription
from penstock.connectors.kafka.serializing import KafkaRecordSerializationSchema, Message
from penstock.connectors.kafka.transactions import KafkaTransactions, TransactionFenced
from penstock.connectors.sink import AT_LEAST_ONCE, EXACTLY_ONCE, Sink, SinkWriter
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

_CHUNK = 256 << 10
"""Bytes of messages that are put aside together."""
_POLL = 1000
"""Messages between two looks at what was refused."""
_ATTEMPTS = 3
"""At a transaction while others take its id."""
_DEFAULTS = {
    "partitioner": "murmur2_random",
    # What librdkafka sends again after a broken connection is neither doubled nor out of order.
    "enable.idempotence": True,
}


class KafkaSink(Sink):
    """Made by `KafkaSink.builder()`."""

    concurrent_commit = True

    def __init__(
        self, client: KafkaClient, serializer: KafkaRecordSerializationSchema, exactly_once: bool, prefix: str
    ) -> None:
        self._client = client
        self._serializer = serializer
        self._exactly_once = exactly_once
        self._prefix = prefix
        self._transactions: dict[str, KafkaTransactions] = {}
        """In the driver, by uid."""
        if exactly_once:
            self.guarantee = EXACTLY_ONCE
            self.why = "the driver sends an epoch's records in one transaction, which holds the number of the epoch"
        else:
            self.guarantee = AT_LEAST_ONCE
            self.why = "tasks send records at once, and again if their epoch is run again"

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        return KafkaSinkBuilder()

    def start(self, context: CommitContext) -> None:
        """Raises if a topic that is known beforehand does not exist, or the cluster does not let us ask for it."""
        cluster = Cluster(self._client)
        try:
            cluster.partitions(Subscription(topics=self._serializer.topics))
        finally:
            cluster.close()

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        if self._exactly_once:
            return _PutAside(self._serializer, context)
        return _SentAtOnce(self._serializer, self._client)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return self._commit(commits, context)
            except TransactionFenced:
                # Also by an older driver of this job that woke up and does not know yet that it is one.
                if not attempts_left:
                    raise

    def _commit(self, commits: list[Commit], context: CommitContext) -> None:
        lineage, epoch = commits[0].lineage, commits[0].epoch
        messages = _messages(commits, context)
        first = next(messages, None)
        if first is None:
            return
        # Kept only while all goes well: after an error it is unknown what it has sent.
        transactions = self._transactions.pop(context.uid, None)
        if transactions is None or commits[0].again:
            transactions = KafkaTransactions(self._client, f"{self._prefix}-{context.uid}")
            # Another driver may have sent the epoch, or this one before an error.
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
    """Sends as records come; an epoch is complete when Kafka has taken them all."""

    def __init__(self, serializer: KafkaRecordSerializationSchema, client: KafkaClient) -> None:
        self._serialize = serializer.serialize
        self._client = client
        self._confluent = confluent_kafka()
        self._refused: list[str] = []
        # Only what is refused is reported: a call for each message would cost as much as sending it.
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
                # librdkafka holds as many as it may.
                self._producer.poll(0.1)
            except self._confluent.KafkaException as error:
                raise self._client.failed(f"send a message to topic '{topic}'", error) from None
        self._sent += 1
        if self._sent % _POLL == 0:
            self._producer.poll(0)

    def prepare_commit(self) -> bytes | None:
        # Ends: librdkafka gives a message up after message.timeout.ms.
        self._producer.flush()
        if self._refused:
            raise KafkaError(
                f"KafkaSink at {self._client.servers}: {len(self._refused)} messages were not taken, the first "
                f"{self._refused[0]}.",
                fix="See whether the topic exists and takes messages of this size, and whether the brokers run.",
            )
        return None

    def close(self) -> None:
        self._producer.purge()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(f"for topic '{message.topic()}': {self._client.hide(error.str())}")


class KafkaSinkBuilder:
    """Servers and a record serializer are needed; for EXACTLY_ONCE also a prefix for the transactional id."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Without it NONE, which is no less here than AT_LEAST_ONCE."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise PenstockError(f"set_delivery_guarantee needs a DeliveryGuarantee, not {delivery_guarantee!r}.")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """One that no other job has, and that stays the same: by it a new driver keeps an older one from writing."""
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise PenstockError(
                f"set_record_serializer needs what KafkaRecordSerializationSchema.builder() builds, not "
                f"{type(record_serializer).__name__}."
            )
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """A property of librdkafka."""
        self._properties[key] = str(value)
        return self

    def build(self) -> KafkaSink:
        if "bootstrap.servers" not in self._properties:
            raise PenstockError("A KafkaSink needs servers: set_bootstrap_servers('host:9092').")
        if self._serializer is None:
            raise PenstockError("A KafkaSink needs set_record_serializer(KafkaRecordSerializationSchema.builder()...).")
        exactly_once = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if exactly_once and not self._prefix:
            raise PenstockError(
                "A KafkaSink with DeliveryGuarantee.EXACTLY_ONCE needs set_transactional_id_prefix('name'): a name "
                "that no other job has and that stays the same."
            )
        client = KafkaClient("KafkaSink", dict(self._properties))
        client.check("Producer")
        return KafkaSink(client, self._serializer, exactly_once, self._prefix or "")
