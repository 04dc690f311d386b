"""Finds the service that a command talks to: `-m host:port`, `rest.address`, or the service of this host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

import typer

from penstock.cli.overrides import overrides_of
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.service_lock import is_held
from penstock.common.options import canonical, check_keys, check_values, surrounding_settings
from penstock.common.options.service import REST_ADDRESS, REST_PORT
from penstock.errors import PenstockError
from penstock.rest.client import RestClient

Address = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--jobmanager",
        metavar="HOST:PORT",
        help="The service to talk to. By default that of rest.address, or the one that runs on this host.",
    ),
]


class NoCluster(PenstockError):
    """No service is configured, and none runs on this host.

    Operator action: start one with `penstock cluster start`, or set `rest.address` and `rest.port`.
    """

    retryable = False


def command_settings(given: list[str] | None) -> dict[str, str]:
    """Return the settings of a command: those around it, and those of its options `-D`. Raises BadSetting."""
    overrides = overrides_of(given)
    check_keys(overrides)
    settings = canonical(surrounding_settings() | overrides)
    check_values(settings)
    return settings


def service_of(settings: Mapping[str, str], address: str | None) -> RestClient:
    """Return a client of the service. Raises NoCluster if it does not exist."""
    client = service_if_any(settings, address)
    if client is not None:
        return client
    directory = ClusterDirectory.configured(settings)
    raise NoCluster(
        f"No service runs in {directory.root}, and rest.address is not set.",
        fix="Start one with `penstock cluster start`, or pass -m host:port.",
    )


def service_if_any(settings: Mapping[str, str], address: str | None) -> RestClient | None:
    """Return a client of the service, or None if none is configured and none runs on this host."""
    if address:
        return client_at(settings, address)
    if REST_ADDRESS.read(settings):
        return client_at(settings, "")
    return service_of_this_host(settings)


def service_of_this_host(settings: Mapping[str, str]) -> RestClient | None:
    """Return a client of the service in `cluster.dir`, or None if none runs there, or it starts or stops."""
    directory = ClusterDirectory.configured(settings)
    if not is_held(directory.lock):
        return None
    try:
        return client_at(settings, directory.address.read_text().strip())
    except FileNotFoundError:
        return None


def client_at(settings: Mapping[str, str], address: str) -> RestClient:
    """Return a client of the service at an address: `host:port`, a URL, or empty for the configured one."""
    return RestClient.of_settings({**settings, **_settings_of(address)}, tls=address.startswith("https://"))


def _settings_of(address: str) -> dict[str, str]:
    if not address:
        return {}
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise typer.BadParameter(f"'{address}' is not an address: write host:port.", param_hint="-m")
    return {REST_ADDRESS.key: host} | ({} if port is None else {REST_PORT.key: str(port)})
