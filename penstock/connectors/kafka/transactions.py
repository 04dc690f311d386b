"""Sends an epoch's messages in one transaction, together with the epoch number.

librdkafka cannot resume a transaction that another producer began, so no transaction is open between tasks and driver:
tasks log the messages, and the driver sends them when their checkpoint is complete. If the driver dies while sending,
its successor must know whether the transaction was committed. Each transaction therefore also commits an offset in a
consumer group dedicated to the sink, from which no consumer reads: the epoch, with the lineage as metadata. Kafka
commits both atomically.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.connectors.kafka.client import KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.serializing import Message

_DEFAULTS = {
    # The partitioner of Java's producers.
    "partitioner": "murmur2_random",
    # The maximum of brokers with default settings: the time within which an epoch's messages must be sent.
    "transaction.timeout.ms": 900_000,
}
_POLL = 10_000
"""Messages between two polls for delivery reports."""


class TransactionFenced(KafkaError):
    """A newer Kafka producer uses this transactional id. This is how a driver fences off older drivers.

    Operator action: none, if a new driver of the job is running. Otherwise give each job its own transactional id
    prefix.
    """

    retryable = False


class KafkaTransactions:
    """A transactional producer. Opening it completes or aborts the open transaction of its predecessor."""

    def __init__(self, client: KafkaClient, transactional_id: str) -> None:
        self._client = client
        self._confluent = confluent_kafka()
        self._id = transactional_id
        self._producer = client.producer({"transactional.id": transactional_id}, _DEFAULTS)
        self._ledger = client.consumer(
            {"group.id": transactional_id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._call("initialize transactions", self._producer.init_transactions, client.timeout)

    def holds(self, topic: str, lineage: str, epoch: int) -> bool:
        """Return whether the epoch's transaction was committed. `topic`: the topic of its first message."""
        [found] = self._call(
            "look up the last committed epoch", self._ledger.committed, [self._entry(topic)], self._client.timeout
        )
        # confluent-kafka stores strings with their terminating NUL.
        return (found.metadata or "").rstrip("\0") == lineage and bool(found.offset >= epoch)

    def send(self, messages: Iterable[Message], topic: str, lineage: str, epoch: int) -> None:
        """Send all messages and the epoch number, or nothing."""
        self._call(f"begin the transaction of epoch {epoch}", self._producer.begin_transaction)
        try:
            self._produce(messages)
            self._call(
                f"record epoch {epoch}",
                self._producer.send_offsets_to_transaction,
                [self._entry(topic, epoch, lineage)],
                self._ledger.consumer_group_metadata(),
                self._client.timeout,
            )
            # Waits for every message, and raises if one was not delivered.
            self._call(f"commit the transaction of epoch {epoch}", self._producer.commit_transaction)
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        self._ledger.close()

    def _produce(self, messages: Iterable[Message]) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for number, (topic, key, value) in enumerate(messages):
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    # The queue of librdkafka is full.
                    poll(0.1)
                except self._confluent.KafkaException as error:
                    raise self._client.failed(f"send a message to topic '{topic}'", error) from None
            if number % _POLL == 0:
                poll(0)

    def _abort(self) -> None:
        """Abort, to spare readers the transaction timeout. The next producer of this id would abort it anyway."""
        try:
            self._producer.abort_transaction(self._client.timeout)
        except self._confluent.KafkaException:
            pass

    def _entry(self, topic: str, epoch: int = -1001, lineage: str = "") -> Any:
        return self._confluent.TopicPartition(topic, 0, epoch, lineage)

    def _call(self, doing: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._confluent.KafkaException as error:
            codes = self._confluent.KafkaError
            if error.args[0].code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
                raise TransactionFenced(
                    f"{self._client.owner} cannot {doing}: another producer uses the transactional id '{self._id}'.",
                    fix="If another driver of this job is running, it has taken over. If another job has the same "
                    "set_transactional_id_prefix(...), set a different prefix for each job.",
                ) from None
            raise self._client.failed(doing, error) from None
