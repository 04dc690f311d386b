"""Serialization: the topic, key and value of the message for a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.common.serialization import SerializationSchema
from penstock.errors import PenstockError


class Message(NamedTuple):
    """A message to log and send."""

    topic: str
    key: bytes | None
    value: bytes | None


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic."""


class KafkaRecordSerializationSchema(ABC):
    """Turns records into messages. Pickled into the job. Subclass it if the builder is not flexible enough."""

    topics: tuple[str, ...] = ()
    """Topics known in advance: they must exist when the job starts."""

    @abstractmethod
    def serialize(self, value: Any) -> Message:
        """Return the message for a record, deterministically."""

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builder of a schema. A topic (or topic selector) and a value schema are required.

    The key schema and the value schema both receive the complete record.
    """

    def __init__(self) -> None:
        self._topic: str | Callable[[Any], str] | None = None
        self._key: Callable[[Any], bytes | None] | None = None
        self._value: Callable[[Any], bytes | None] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Send all records to this topic."""
        if not isinstance(topic, str) or not topic:
            raise PenstockError(f"set_topic needs a topic name, not {topic!r}.")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record with a function or a ``KafkaTopicSelector``."""
        if not isinstance(topic_selector, KafkaTopicSelector) and not callable(topic_selector):
            raise PenstockError(f"set_topic_selector needs a function of a record, not {topic_selector!r}.")
        self._topic = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes the key. Without it, messages have no key."""
        self._key = _serialize(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes the value."""
        self._value = _serialize(value_serialization_schema)
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema. Raises PenstockError if the topic or the value schema is missing."""
        if self._topic is None:
            raise PenstockError("A KafkaRecordSerializationSchema needs a topic: set_topic('name').")
        if self._value is None:
            raise PenstockError(
                "A KafkaRecordSerializationSchema needs a value schema: "
                "set_value_serialization_schema(SimpleStringSchema())."
            )
        return _Built(self._topic, self._key, self._value)


class _Built(KafkaRecordSerializationSchema):
    def __init__(
        self,
        topic: str | Callable[[Any], str],
        key: Callable[[Any], bytes | None] | None,
        value: Callable[[Any], bytes | None],
    ) -> None:
        self._topic = topic
        self._key = key
        self._value = value
        self.topics = (topic,) if isinstance(topic, str) else ()

    def serialize(self, value: Any) -> Message:
        topic = self._topic
        return Message(
            topic if type(topic) is str else topic(value),  # type: ignore[operator]
            None if self._key is None else self._key(value),
            self._value(value),
        )


def _serialize(schema: Any) -> Callable[[Any], bytes | None]:
    serialize = getattr(schema, "serialize", None)
    if not callable(serialize):
        raise PenstockError(
            f"Expected a SerializationSchema, such as SimpleStringSchema() or JsonSchema(), not {schema!r}."
        )
    return serialize  # type: ignore[no-any-return]
