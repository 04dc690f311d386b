"""`penstock web`: print a link that opens the page of a service."""

from __future__ import annotations

import json

import typer

from penstock.cli.jobs import AsJson
from penstock.cli.overrides import Setting
from penstock.cli.service_address import Address, command_settings, service_of
from penstock.cli.shown_errors import ShownErrors
from penstock.common.options.service import REST_AUTH
from penstock.rest.token_file import service_token
from penstock.web.login import login_url


def web(address: Address = None, setting: Setting = None, as_json: AsJson = False) -> None:
    """Print a link that opens the web page of the service. It works once, within ten minutes."""
    with ShownErrors():
        settings = command_settings(setting)
        link = login_url(service_of(settings, address).address, service_token(settings))
    typer.echo(json.dumps({"link": link}, indent=2) if as_json else link)
    if not as_json and REST_AUTH.read(settings):
        typer.echo("The link works once, within ten minutes. The browser then stays logged in for 12 hours.", err=True)
