"""An epoch's messages in one transaction, with the number of the epoch as an offset in it.

librdkafka cannot go on with a transaction that another producer began, so none is open between tasks and driver: tasks
put messages aside, and the driver sends them when their checkpoint is complete. Should it die over that, the next one
must know whether the transaction was committed. So each has in it an offset of a group of the sink's own, which nobody
reads by: the epoch, with the lineage as its metadata. Kafka shows both or neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.connectors.kafka.client import KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.serializing import Message

_DEFAULTS = {
    # As Java's producers choose partitions by key.
    "partitioner": "murmur2_random",
    # The most that brokers allow unless they are told otherwise: an epoch's messages must have been sent by then.
    "transaction.timeout.ms": 900_000,
}
_POLL = 10_000
"""Messages between two looks at what was delivered."""


class TransactionFenced(KafkaError):
    """A producer of this transactional id was opened after this one: so a driver keeps older ones from writing."""

    retryable = False


class KafkaTransactions:
    """One transactional producer. Opening it ends, one way or the other, what an earlier one left open."""

    def __init__(self, client: KafkaClient, transactional_id: str) -> None:
        self._client = client
        self._confluent = confluent_kafka()
        self._id = transactional_id
        self._producer = client.producer({"transactional.id": transactional_id}, _DEFAULTS)
        self._ledger = client.consumer(
            {"group.id": transactional_id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._call("begin to write", self._producer.init_transactions, client.timeout)

    def holds(self, topic: str, lineage: str, epoch: int) -> bool:
        """Whether the epoch's transaction was committed; `topic` is that of its first message."""
        [found] = self._call(
            "learn which epoch it wrote last", self._ledger.committed, [self._entry(topic)], self._client.timeout
        )
        # confluent-kafka stores a text with the zero that ends it in C.
        return (found.metadata or "").rstrip("\0") == lineage and bool(found.offset >= epoch)

    def send(self, messages: Iterable[Message], topic: str, lineage: str, epoch: int) -> None:
        """All of them, and that it was this epoch; or none."""
        self._call(f"begin the transaction of epoch {epoch}", self._producer.begin_transaction)
        try:
            self._produce(messages)
            self._call(
                f"write down epoch {epoch}",
                self._producer.send_offsets_to_transaction,
                [self._entry(topic, epoch, lineage)],
                self._ledger.consumer_group_metadata(),
                self._client.timeout,
            )
            # Waits for every message, and raises if one was refused.
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
                    # librdkafka holds as many as it may.
                    poll(0.1)
                except self._confluent.KafkaException as error:
                    raise self._client.failed(f"send a message to topic '{topic}'", error) from None
            if number % _POLL == 0:
                poll(0)

    def _abort(self) -> None:
        """Else readers wait for the transaction until it times out. The next producer of this id aborts it anyway."""
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
                    f"{self._client.owner} cannot {doing}: another producer has taken the transactional id "
                    f"'{self._id}'.",
                    fix="If another driver of this job runs, it carries the job on. If another job has the same "
                    "set_transactional_id_prefix(...), give each its own.",
                ) from None
            raise self._client.failed(doing, error) from None
