"""librdkafka clients: their properties, and the errors to raise when a cluster is unavailable."""

from __future__ import annotations

import logging
from typing import Any

from penstock.common.masking import is_secret, masked_text
from penstock.connectors.kafka.java_properties import JAAS
from penstock.errors import PenstockError

log = logging.getLogger("penstock.connectors.kafka")
_librdkafka = logging.getLogger("penstock.connectors.kafka.librdkafka")

_TIMEOUT_S = 30.0
"""Default request timeout, unless socket.timeout.ms is set: long enough for a broker restart."""
GROUP = {"group.id": "penstock"}
"""A consumer needs a group. Nothing is ever committed to this one, and no client joins it."""


class KafkaError(PenstockError):
    """A Kafka cluster rejected a request of a source or sink, or did not respond.

    Operator action: check the brokers' address, their availability and the client's permissions; the job retries.
    """


class _LibrdkafkaLog:
    """Demotes librdkafka's log lines to DEBUG: it logs every connection attempt, and errors contain the essentials."""

    @staticmethod
    def log(level: int, message: str, *details: Any) -> None:
        _librdkafka.debug(message, *details)


class KafkaClient:
    """Factory of consumers and producers. Pickled into the job. `owner` is named in errors."""

    def __init__(self, owner: str, properties: dict[str, str]) -> None:
        self.owner = owner
        self._properties = properties
        self._last_said = ""

    def __repr__(self) -> str:
        return f"{self.owner} at {self.servers}"

    @property
    def servers(self) -> str:
        return self._properties["bootstrap.servers"]

    @property
    def timeout(self) -> float:
        """Return the request timeout in seconds."""
        set_by_user = self._properties.get("socket.timeout.ms")
        return _TIMEOUT_S if set_by_user is None else int(set_by_user) / 1000

    def consumer(self, settings: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
        """Return a consumer. `settings` override the user's properties, which override `defaults`."""
        return self._open("Consumer", {**(defaults or {}), **self._properties, **settings})

    def producer(self, settings: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
        return self._open("Producer", {**(defaults or {}), **self._properties, **settings})

    def check(self, kind: str) -> None:
        """Raise if librdkafka rejects the properties. Does not wait for a broker."""
        if JAAS in self._properties:
            # As in Flink, invalid credentials fail the job when it connects.
            return
        if kind == "Consumer":
            self.consumer({}, GROUP).close()
        else:
            self.producer({})

    def failed(self, doing: str, error: Any, fix: str = "") -> KafkaError:
        """Return the error to raise when the cluster does not respond or rejects a request. `error` is confluent's."""
        more = f" Last error of librdkafka: {self._last_said}." if self._last_said else ""
        return KafkaError(
            f"{self.owner} at {self.servers} cannot {doing}: {self._said(error)}.{more}",
            fix=fix
            or "Check that the brokers are running at this address and that the security properties match theirs.",
        )

    def hide(self, text: str) -> str:
        """Return the text with passwords masked."""
        return masked_text(text, (value for name, value in self._properties.items() if is_secret(name)))

    def _open(self, kind: str, properties: dict[str, Any]) -> Any:
        confluent = confluent_kafka()
        if JAAS in properties:
            raise KafkaError(
                f"{self.owner}: {JAAS} names no user that librdkafka could log in as.",
                fix="Set sasl.username and sasl.password, or write org.apache.kafka.common.security.plain"
                '.PlainLoginModule required username="..." password="...";',
            )
        properties["error_cb"] = self._heard
        # Brokers close connections that are idle for ten minutes, and the client reconnects; do not log that.
        properties.setdefault("log.connection.close", "false")
        try:
            return getattr(confluent, kind)(properties, logger=_LibrdkafkaLog)
        except (confluent.KafkaException, TypeError, ValueError) as error:
            raise KafkaError(
                f"{self.owner}: librdkafka rejects the properties: {self._said(error)}.",
                fix="See librdkafka's CONFIGURATION.md for the valid properties.",
            ) from None

    def _said(self, error: Any) -> str:
        """Return the text of a confluent exception or error."""
        inner = error.args[0] if getattr(error, "args", None) else error
        return self.hide(inner.str() if hasattr(inner, "str") else str(error)).rstrip(".")

    def _heard(self, error: Any) -> None:
        self._last_said = self.hide(error.str())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_said": ""}


def confluent_kafka() -> Any:
    """Import and return confluent_kafka, which is an optional dependency."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise PenstockError(
            f"KafkaSource and KafkaSink need confluent-kafka: {error}.",
            fix="Install it on the driver and the executors: pip install 'penstock[kafka]'.",
        ) from error
    return confluent_kafka
