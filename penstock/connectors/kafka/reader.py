"""Reads exactly a range of one partition, with a consumer that is kept for the next range."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from penstock.connectors.kafka.client import GROUP, KafkaClient, KafkaError, confluent_kafka
from penstock.connectors.kafka.offsets import KafkaTopicPartition

_BATCH = 1000
"""Messages taken at a time: 0.8 µs each, where one at a time they are 1.5 µs."""
_SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    # Says that the end is reached where no record is: behind the marker of a transaction, or what was compacted.
    "enable.partition.eof": True,
    # An offset that is gone must never be passed over.
    "auto.offset.reset": "error",
}
_DEFAULTS: dict[str, Any] = {
    **GROUP,
    # How long a broker keeps a request when it has nothing. The end of a partition, and the way to another one, wait
    # for it: with the 500 ms of librdkafka each took half a second, so 14 ms.
    "fetch.wait.max.ms": 10,
    # What is fetched beyond the range is thrown away.
    "queued.max.messages.kbytes": 16_384,
}


class OffsetGone(KafkaError):
    """Records that were not read yet are not there any more. Reading on would lose them in silence."""

    retryable = False


class PartitionReader:
    """One consumer of a process. It is assigned a partition while a range is read, and fetches nothing in between.

    Opening one takes two to four milliseconds where brokers are on the same host, more with encryption; giving it
    another partition one or less.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._confluent = confluent_kafka()
        self._consumer = client.consumer(_SETTINGS, _DEFAULTS)

    def read(self, partition: KafkaTopicPartition, start: int, end: int) -> Iterator[Any]:
        """The messages from `start` up to, not including, `end`. There may be fewer than offsets."""
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
            # Without a time to wait it gives what is there; with one it would wait until the batch is full.
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
        raise self._client.failed(f"read {partition} from offset {position} on", TimeoutError("nothing came in time"))

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
        why = "the topic was made anew, or lost its end"
    return OffsetGone(
        f"{owner}: {partition}: offset {offset} is gone: the partition holds {holds}, so {why}. Nothing was "
        f"passed over.",
        fix="Keep records longer, with the topic's retention.ms. To go on without what is missing, start the job from "
        "a savepoint with another uid for the source: it then begins where set_starting_offsets(...) says.",
    )
