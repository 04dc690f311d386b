"""Options for reporters of metrics, of which Penstock has one: an endpoint for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Ports, Text, Truth

_PREFIX = "metrics.reporter."
_FACTORY = re.compile(r"metrics\.reporter\.([^.]+)\.(?:factory\.class|class)")
_CLASSES = ("PrometheusReporterFactory", "PrometheusReporter")
"""Flink's classes of a reporter, without their package. Flink 1 also accepts the second one."""
_DEFAULT_PORT = "9249"
_PORTS = Ports()

REPORTERS = option(
    "metrics.reporters",
    Text(),
    "",
    "Names of the reporters to start, separated by commas. Reporters with other names do not start.",
    default_text="all that are configured",
)
PROM_FACTORY = option(
    "metrics.reporter.prom.factory.class",
    Text(),
    "",
    "`org.apache.flink.metrics.prometheus.PrometheusReporterFactory` starts an endpoint for Prometheus. The "
    "part `prom` of the key can be any name. Reporters of other classes have no effect.",
    default_text="the class for Prometheus, if a port is set",
    aliases=("metrics.reporter.prom.class",),
)
PROM_PORTS = optional(
    "metrics.reporter.prom.port",
    _PORTS,
    f"{_DEFAULT_PORT}, if the factory class is set; otherwise no endpoint",
    "Ports for the endpoint for Prometheus, of which the first free one is taken: a port, a range, or a list of both. "
    "Each job and each Dispatcher on a host needs one. 0 takes any free port.",
)
PROM_HOST = option(
    "metrics.reporter.prom.host",
    Text(),
    "127.0.0.1",
    "Address that the endpoint for Prometheus listens on. The endpoint has no token and no TLS.",
)
PROM_FILTER = option(
    "metrics.reporter.prom.filterLabelValueCharacters",
    Truth(),
    "true",
    "Whether the endpoint for Prometheus replaces all characters but letters, digits, `:` and `_` in the values of "
    "labels, as in Flink.",
)


class PrometheusReporter(NamedTuple):
    """A configured endpoint for Prometheus."""

    name: str
    ports: tuple[int, ...]
    host: str
    filter_values: bool

    @property
    def port_key(self) -> str:
        """The setting of its ports."""
        return f"{_PREFIX}{self.name}.port"

    def owns(self, key: str) -> bool:
        """Return whether a setting takes effect through this endpoint."""
        suffix = key.removeprefix(f"{_PREFIX}{self.name}.")
        return suffix in ("port", "host", "filterLabelValueCharacters", "factory.class", "class")


def prometheus_reporters(settings: Mapping[str, str]) -> list[PrometheusReporter]:
    """Return the endpoints for Prometheus that the settings ask for. Raises BadSetting."""
    classes = {match[1]: value for key, value in settings.items() if (match := _FACTORY.fullmatch(key))}
    if PROM_PORTS.key in settings:
        classes.setdefault("prom", _CLASSES[0])
    chosen = [name.strip() for name in REPORTERS.read(settings).split(",") if name.strip()]
    return [
        _reporter(name, settings)
        for name, value in sorted(classes.items())
        if value.strip().rpartition(".")[2] in _CLASSES and (not chosen or name in chosen)
    ]


def _reporter(name: str, settings: Mapping[str, str]) -> PrometheusReporter:
    def key(option: str) -> str:
        return f"{_PREFIX}{name}.{option}"

    return PrometheusReporter(
        name=name,
        ports=_PORTS.parse(key("port"), settings.get(key("port"), _DEFAULT_PORT)),
        host=settings.get(key("host"), PROM_HOST.default),
        filter_values=PROM_FILTER.type.parse(
            key("filterLabelValueCharacters"), settings.get(key("filterLabelValueCharacters"), "true")
        ),
    )
