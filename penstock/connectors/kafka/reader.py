"""Reads an exact range of one partition, with a consumer that is reused for the next range."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from penstock.connectors.kafka.client import GROUP, KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.offsets import KafkaTopicPartition

_BATCH = 1000
"""Messages consumed per call: 0.8 µs each, compared to 1.5 µs one at a time."""
_SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    # Reports the end of the partition if the last offsets hold no record: transaction markers, compacted records.
    "enable.partition.eof": True,
    # A missing offset must never be skipped silently.
    "auto.offset.reset": "error",
}
_DEFAULTS: dict[str, Any] = {
    **GROUP,
    # How long a broker holds a fetch request when it has no data. Reaching the end of a partition and switching to
    # another one wait for it: each took half a second with librdkafka's default of 500 ms, and now takes 14 ms.
    "fetch.wait.max.ms": 10,
    # Data fetched beyond the range is discarded.
    "queued.max.messages.kbytes": 16_384,
}


class OffsetGone(KafkaError):
    """Records of a Kafka partition were removed before they were read. Continuing would lose them silently.

    Operator action: increase the topic's retention. To accept the loss, give the source a new uid and start from the
    earliest offset.
    """

    retryable = False


class PartitionReader:
    """The consumer of a process. It is assigned a partition while a range is read, and fetches nothing in between.

    Opening a consumer takes two to four milliseconds with brokers on the same host, more with encryption; assigning
    another partition takes one or less.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._confluent = confluent_kafka()
        self._consumer = client.consumer(_SETTINGS, _DEFAULTS)

    def read(self, partition: KafkaTopicPartition, start: int, end: int) -> Iterator[Any]:
        """Yield the messages from `start` up to, but excluding, `end`. There can be fewer messages than offsets."""
        if start >= end:
            return
        self._consumer.assign([self._confluent.TopicPartition(partition.topic, partition.partition, start)])
        try:
            yield from self._messages(partition, start, end)
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()

    def _messages(self, partition: KafkaTopicPartition, position: int, end: int) -> Iterator[Any]:
        while position < end:
            # Without a timeout consume() returns the available messages; with one it would wait for a full batch.
            for message in self._consumer.consume(min(_BATCH, end - position), 0) or self._await(partition, position):
                error = message.error()
                if error is None:
                    offset = message.offset()
                    if offset >= end:
                        return
                    yield message
                    position = offset + 1
                elif error.code() == self._confluent.KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())
                elif not error.retriable():
                    raise self._failed(partition, position, error)

    def _await(self, partition: KafkaTopicPartition, position: int) -> list[Any]:
        deadline = time.monotonic() + self._client.timeout
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.5)
            if message is not None:
                return [message]
        raise self._client.failed(f"read {partition} from offset {position} on", TimeoutError("timed out"))

    def _failed(self, partition: KafkaTopicPartition, position: int, error: Any) -> KafkaError:
        codes = self._confluent.KafkaError
        if error.code() not in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            return self._client.failed(
                f"read {partition} from offset {position} on", self._confluent.KafkaException(error)
            )
        named = self._confluent.TopicPartition(partition.topic, partition.partition)
        first, last = self._consumer.get_watermark_offsets(named, timeout=self._client.timeout)
        return offset_gone(self._client.owner, partition, position, first, last)


def offset_gone(owner: str, partition: KafkaTopicPartition, offset: int, first: int, last: int) -> OffsetGone:
    holds = "nothing" if first >= last else f"offsets {first} to {last - 1}"
    if offset < first:
        why = f"the topic's retention removed {first - offset} offsets before they were read"
    else:
        why = "the topic was recreated or truncated"
    return OffsetGone(
        f"{owner}: {partition}: offset {offset} no longer exists: the partition holds {holds}, so {why}. No record was "
        f"skipped.",
        fix="Increase the topic's retention.ms. To continue without the missing records, start the job from a "
        "savepoint with another uid for the source: it then starts at set_starting_offsets(...).",
    )
