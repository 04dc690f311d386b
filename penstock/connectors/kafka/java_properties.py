"""Properties of Kafka's Java client, which Flink programs set, as properties of librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.common.without_effect import note
from penstock.errors import PenstockError

JAAS = "sasl.jaas.config"

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_CLASSES = "it names a class of the Java client"
_DROPPED = {
    "max.poll.records": "penstock.epoch.max-records limits the records of an epoch",
    "max.block.ms": "a full queue holds back the records of the epoch",
    "default.api.timeout.ms": "requests end after socket.timeout.ms",
    "partition.assignment.strategy": "partitions are assigned by the source, not by the group",
    "group.protocol": "no client joins the group",
    "group.remote.assignor": "no client joins the group",
    "exclude.internal.topics": "a topic pattern matches full names",
    "zookeeper.connect": "clients connect to brokers only",
    "auto.include.jmx.reporter": _CLASSES,
    "metric.reporters": _CLASSES,
    "interceptor.classes": _CLASSES,
    "partitioner.class": _CLASSES,
    "security.providers": _CLASSES,
    "key.serializer": "the record serializer encodes keys",
    "value.serializer": "the record serializer encodes values",
    "ssl.protocol": "TLS versions are negotiated",
    "ssl.enabled.protocols": "TLS versions are negotiated",
    "ssl.provider": _CLASSES,
    "ssl.engine.factory.class": _CLASSES,
    "ssl.keymanager.algorithm": _CLASSES,
    "ssl.trustmanager.algorithm": _CLASSES,
    "ssl.secure.random.implementation": _CLASSES,
}
"""Properties that librdkafka does not have or need, and why."""
_DROPPED_PREFIXES = ("metrics.", "sasl.login.refresh.", "register.", "enable.metrics.push")
_USER = re.compile(r"\b(username|password|keyTab|principal)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;\"']+))")
_MODULE = re.compile(r"^\s*([\w.$]+)\s+\w+")
_FROM_JAAS = {
    "username": "sasl.username",
    "password": "sasl.password",
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
}


def to_librdkafka(owner: str, properties: Mapping[str, str], *, consumer: bool) -> dict[str, str]:
    """Return the properties for librdkafka; those that it does not need are noted and left out.

    Args:
        owner: ``KafkaSource`` or ``KafkaSink``, for the note.
        properties: The program's properties, with names of the Java client or of librdkafka.
        consumer: Whether they are for a consumer.

    Raises:
        PenstockError: A property has no counterpart although the job needs it, such as a Java trust store.
    """
    translated: dict[str, str] = {}
    for name, value in properties.items():
        dropped = why_dropped(name)
        if name == "ssl.endpoint.identification.algorithm" and not value:
            translated[name] = "none"
        elif name == "buffer.memory":
            translated["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif name == "request.timeout.ms" and consumer:
            translated.setdefault("socket.timeout.ms", value)
        elif name == JAAS:
            translated |= _credentials(value)
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) and name not in _RENAMED:
            translated |= _store(owner, name, value, properties)
        elif dropped is not None:
            note(f"{owner} property {name}", dropped)
        else:
            translated[_RENAMED.get(name, name)] = value
    return translated


def why_dropped(name: str) -> str | None:
    """Return why a property is not needed; None if it is."""
    return _DROPPED.get(name) or (_CLASSES if name.startswith(_DROPPED_PREFIXES) else None)


def _credentials(jaas: str) -> dict[str, str]:
    """Return the user of a JAAS entry. An entry without one stays, and fails when the job connects."""
    found = {_FROM_JAAS[key]: _unquoted(quoted, single or plain) for key, quoted, single, plain in _USER.findall(jaas)}
    return found if _MODULE.match(jaas) and found else {JAAS: jaas}


def _unquoted(quoted: str, other: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted) if quoted else other


def _store(owner: str, name: str, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    store, _, part = name.removeprefix("ssl.").partition(".")
    kind = properties.get(f"ssl.{store}.type", "PKCS12" if store == "keystore" else "JKS").upper()
    if part == "type":
        return {}
    if kind == "PEM" and part == "location":
        # A PEM key store contains both the certificates and the key.
        names = ["ssl.ca.location"] if store == "truststore" else ["ssl.certificate.location", "ssl.key.location"]
        return dict.fromkeys(names, value)
    if store == "keystore" and kind == "PKCS12":
        return {name: value}
    if part == "location":
        pem = "ssl.ca.location" if store == "truststore" else "ssl.certificate.location and ssl.key.location"
        raise PenstockError(
            f"{owner}: {name} is '{value}', a Java {store}, which librdkafka cannot read.",
            fix=f"Export it with keytool and openssl, and set {pem} to PEM files.",
        )
    return {}
