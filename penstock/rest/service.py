"""The settings of the REST interface, parsed once, and the cluster behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cluster.gateway import Gateway
from penstock.common.options.service import (
    REST_MAX_CONTENT,
    REST_TIMEOUT,
    REST_TLS_CA,
    WEB_CANCEL,
    WEB_REFRESH,
    WEB_SUBMIT,
)
from penstock.rest.agents import HttpAgents
from penstock.rest.masking import Masking

_SLOW = ("/plan", "/dry-run", "/jars/upload")
_SLOW_S = 70.0
"""Time for a plan or a dry run, which another process makes, and for the check of an uploaded archive."""


def longest_s(path: str, timeout_s: float) -> float:
    """Return how long a service with this `web.timeout` takes to begin the answer of a complete request."""
    return max(timeout_s, _SLOW_S) if path.rstrip("/").endswith(_SLOW) else timeout_s


@dataclass
class Service:
    """What the handlers of requests share."""

    gateway: Gateway
    uploads: Path
    """A private directory for uploads that are not complete."""
    masking: Masking
    max_content: int
    submit: bool
    cancel: bool
    refresh_ms: int
    timeout_s: float
    trusted: str
    """The file with the authorities of the leader's certificate; empty: those of the operating system."""
    agents: HttpAgents
    """Reaches the Dispatchers of other hosts."""
    stopping: bool = field(default=False, init=False)
    """Whether the server stops. Streams then end."""


def service_of(gateway: Gateway, settings: Mapping[str, str], uploads: Path, token: str) -> Service:
    """Return the service with these settings. Raises BadSetting."""
    return Service(
        gateway=gateway,
        uploads=uploads,
        masking=Masking(settings, token),
        max_content=REST_MAX_CONTENT.read(settings),
        submit=WEB_SUBMIT.read(settings),
        cancel=WEB_CANCEL.read(settings),
        refresh_ms=WEB_REFRESH.read(settings),
        timeout_s=REST_TIMEOUT.read(settings) / 1000,
        trusted=REST_TLS_CA.read(settings),
        agents=HttpAgents(token, REST_TLS_CA.read(settings)),
    )
