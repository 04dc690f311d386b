"""Deserialization: messages become their value, or a record with all Kafka metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from penstock.common.serialization import DeserializationSchema
from penstock.errors import PenstockError


class KafkaRecord(NamedTuple):
    """A message with its metadata.

    ``timestamp`` is in milliseconds, or None if the topic has none. A header name can occur more than once.
    """

    key: Any
    value: Any
    timestamp: int | None
    topic: str
    partition: int
    offset: int
    headers: list[tuple[str, bytes | None]]


class KafkaRecordDeserializationSchema(ABC):
    """Turns messages into records. Pickled into the job. Subclass it to combine key, value and metadata."""

    produced_type: Any = None
    """The type of the records, if the schema declares one. Messages that become None are then left out, as in Flink."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """Return the record for a message, deterministically. Key and value are bytes, or None if absent."""

    def from_message(self, message: Any) -> Any:
        """Return the record for a confluent message."""
        return self.deserialize(_record(message))

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Return a schema that yields the value of each message; None for a tombstone."""
        return _ValueOnly(_checked(deserialization_schema))

    @staticmethod
    def records(
        value: DeserializationSchema | None = None, key: DeserializationSchema | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Return a schema that yields ``KafkaRecord`` objects.

        Args:
            value: Schema of the value; bytes by default.
            key: Schema of the key; bytes by default.
        """
        return _Records(*(None if schema is None else _checked(schema) for schema in (value, key)))


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema
        self.produced_type = getattr(schema, "produced_type", None)

    def deserialize(self, record: KafkaRecord) -> Any:
        return None if record.value is None else self._schema.deserialize(record.value)

    def from_message(self, message: Any) -> Any:
        value = message.value()
        return None if value is None else self._schema.deserialize(value)


class _Records(KafkaRecordDeserializationSchema):
    def __init__(self, value: DeserializationSchema | None, key: DeserializationSchema | None) -> None:
        self._value = value
        self._key = key

    def deserialize(self, record: KafkaRecord) -> Any:
        value, key = record.value, record.key
        if value is not None and self._value is not None:
            value = self._value.deserialize(value)
        if key is not None and self._key is not None:
            key = self._key.deserialize(key)
        return record._replace(value=value, key=key)


def _record(message: Any) -> KafkaRecord:
    kind, timestamp = message.timestamp()
    return KafkaRecord(
        message.key(),
        message.value(),
        timestamp if kind else None,
        message.topic(),
        message.partition(),
        message.offset(),
        message.headers() or [],
    )


def _checked(schema: Any) -> DeserializationSchema:
    if not callable(getattr(schema, "deserialize", None)):
        raise PenstockError(
            f"Expected a DeserializationSchema, such as SimpleStringSchema() or JsonSchema(), not {schema!r}."
        )
    return schema  # type: ignore[no-any-return]
