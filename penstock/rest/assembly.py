"""Puts the REST interface of a service together: token, audit log, directory for uploads, application and server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.types import ASGIApp

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.gateway import Gateway
from penstock.common.options.service import LOG_FILES, LOG_SIZE
from penstock.rest.app import Application, application
from penstock.rest.audit import AuditLog
from penstock.rest.server import RestServer
from penstock.rest.token_file import service_token

AddPage = Callable[[Application, Mapping[str, str], str], ASGIApp]
"""Returns an application that serves the page, and passes other requests on to the given one. See `penstock.web.mount`.

The settings are those of the service, and the text is its token: empty if requests need none.
"""

_UPLOADS = "uploads"


def rest_server(gateway: Gateway, settings: Mapping[str, str], folder: Path, page: AddPage | None = None) -> RestServer:
    """Return the server of a Dispatcher or an application. It listens, and answers after `start` or `serve`.

    Args:
        gateway: The cluster or application behind it.
        settings: The settings of the service.
        folder: A private directory of this process, such as `cluster.dir`: for the audit log and incomplete uploads.
        page: Adds the web page, which is a higher layer.

    Raises:
        BadSetting: A setting is invalid.
        UnusableToken: Other users have access to the token file.
        TlsRequired: The address can be reached from other hosts, and no certificate is set.
        CannotListen: The address cannot be bound.
    """
    token = service_token(settings)
    uploads = folder / _UPLOADS
    # A killed process leaves incomplete uploads.
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.mkdir(mode=0o700, parents=True)
    audit = AuditLog(ClusterDirectory(folder).audit_log, LOG_SIZE.read(settings), LOG_FILES.read(settings))
    app = application(gateway, settings, token=token, uploads=uploads, audit=audit)
    if page is None:
        return RestServer(app, settings, on_stop=app.stop_streams)
    return RestServer(page(app, settings, token), settings, on_stop=app.stop_streams, websockets=True)
