"""The packages of the service, which an installation can lack. Commands that talk to a service do not need them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from penstock.errors import PenstockError


class ServiceNotInstalled(PenstockError):
    """The packages that the service needs are not installed. Operator action: `pip install 'penstock[service]'`."""

    retryable = False


@contextmanager
def service_packages() -> Iterator[None]:
    """Within this context, a missing package is reported as ServiceNotInstalled."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ServiceNotInstalled(
            f"The service needs the package {error.name}, which is not installed.",
            fix="pip install 'penstock[service]'",
        ) from None


def has_page() -> bool:
    """Return whether the packages of the web page are installed. Without them, a service has its REST interface."""
    return find_spec("nicegui") is not None
