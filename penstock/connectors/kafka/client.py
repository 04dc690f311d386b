"""How a cluster is reached: the properties of librdkafka's clients, and what is said when it cannot be."""

from __future__ import annotations

import logging
from typing import Any

from penstock.errors import PenstockError

log = logging.getLogger("penstock.connectors.kafka")
_librdkafka = logging.getLogger("penstock.connectors.kafka.librdkafka")

_TIMEOUT_S = 30.0
"""How long to wait for an answer, where socket.timeout.ms is not set: a broker that is restarted is back by then."""
_SECRET = ("password", "secret", "jaas", "pem", "token", "oauthbearer.config")
"""A property with one of these in its name is never shown."""
GROUP = {"group.id": "penstock"}
"""A consumer must have a group. For this one nothing is ever committed, and nobody joins it."""
_INSTEAD = {
    "sasl.jaas.config": "sasl.mechanism, sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a file in PEM",
    "ssl.truststore.password": "ssl.ca.location, a file in PEM",
    "ssl.keystore.type": "ssl.keystore.location for PKCS#12, or ssl.certificate.location for PEM",
    "max.poll.records": "the setting penstock.epoch.max-records",
}
"""Properties that only the Java client has, and what to set here."""


class KafkaError(PenstockError):
    """The cluster did not do what a source or sink needs of it."""


class _LibrdkafkaLog:
    """Takes librdkafka's log. It repeats a line for every attempt to connect; what matters is in the error raised."""

    @staticmethod
    def log(level: int, message: str, *details: Any) -> None:
        _librdkafka.debug(message, *details)


class KafkaClient:
    """Pickled into the job with its properties; connects where it is used. `owner`: who is named in errors."""

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
        """In seconds."""
        set_by_user = self._properties.get("socket.timeout.ms")
        return _TIMEOUT_S if set_by_user is None else int(set_by_user) / 1000

    def consumer(self, settings: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
        """`settings` are above what the user set, `defaults` below."""
        return self._open("Consumer", {**(defaults or {}), **self._properties, **settings})

    def producer(self, settings: dict[str, Any], defaults: dict[str, Any] | None = None) -> Any:
        return self._open("Producer", {**(defaults or {}), **self._properties, **settings})

    def check(self, kind: str) -> None:
        """Raises if librdkafka does not take the properties. Waits for no broker."""
        for name in _INSTEAD.keys() & self._properties.keys():
            raise KafkaError(
                f"{self.owner}: the property {name} is one of the Java client, which is not used here.",
                fix=f"Set {_INSTEAD[name]} instead.",
            )
        if kind == "Consumer":
            self.consumer({}, GROUP).close()
        else:
            self.producer({})

    def failed(self, doing: str, error: Any, fix: str = "") -> KafkaError:
        """What to raise when the cluster does not answer, or refuses. `error` is confluent's."""
        more = f" librdkafka last said: {self._last_said}." if self._last_said else ""
        return KafkaError(
            f"{self.owner} at {self.servers} cannot {doing}: {self._said(error)}.{more}",
            fix=fix or "See whether the brokers run there and whether the security properties are theirs.",
        )

    def hide(self, text: str) -> str:
        """The text without passwords."""
        for name, value in self._properties.items():
            if value and any(word in name for word in _SECRET):
                text = text.replace(value, "***")
        return text

    def _open(self, kind: str, properties: dict[str, Any]) -> Any:
        confluent = confluent_kafka()
        properties["error_cb"] = self._heard
        # A broker closes connections that nobody used for ten minutes; the client opens another.
        properties.setdefault("log.connection.close", "false")
        try:
            return getattr(confluent, kind)(properties, logger=_LibrdkafkaLog)
        except (confluent.KafkaException, TypeError, ValueError) as error:
            raise KafkaError(
                f"{self.owner}: librdkafka does not take its properties: {self._said(error)}.",
                fix="See CONFIGURATION.md of librdkafka for what there is.",
            ) from None

    def _said(self, error: Any) -> str:
        """What confluent's exception, or its error, says."""
        inner = error.args[0] if getattr(error, "args", None) else error
        return self.hide(inner.str() if hasattr(inner, "str") else str(error)).rstrip(".")

    def _heard(self, error: Any) -> None:
        self._last_said = self.hide(error.str())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_said": ""}


def confluent_kafka() -> Any:
    """The module, imported where it is used: it is an extra."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise PenstockError(
            f"KafkaSource and KafkaSink need confluent-kafka: {error}.",
            fix="Install it where the driver and the tasks run: pip install 'penstock[kafka]'.",
        ) from error
    return confluent_kafka
