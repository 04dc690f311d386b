"""What becomes of a message: its value, or a record with all that Kafka knows of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from penstock.common.serialization import DeserializationSchema
from penstock.errors import PenstockError


class KafkaRecord(NamedTuple):
    """A message. `timestamp` is in milliseconds, None where the topic has none; headers may have a name twice."""

    key: Any
    value: Any
    timestamp: int | None
    topic: str
    partition: int
    offset: int
    headers: list[tuple[str, bytes | None]]


class KafkaRecordDeserializationSchema(ABC):
    """Makes a record of a message. Pickled into the job; subclass it for more than key and value by themselves."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """`record` has key and value as bytes, None where the message has none. The same whenever it is read."""

    def from_message(self, message: Any) -> Any:
        """Of confluent's message."""
        return self.deserialize(_record(message))

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """The value of each message; None for a message without one, a tombstone."""
        return _ValueOnly(_checked(deserialization_schema))

    @staticmethod
    def records(
        value: DeserializationSchema | None = None, key: DeserializationSchema | None = None
    ) -> KafkaRecordDeserializationSchema:
        """`KafkaRecord`s; key and value are bytes where no schema is given, and None where a message has none."""
        return _Records(*(None if schema is None else _checked(schema) for schema in (value, key)))


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

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
            f"A DeserializationSchema is needed, such as SimpleStringSchema() or JsonSchema(), not {schema!r}."
        )
    return schema  # type: ignore[no-any-return]
