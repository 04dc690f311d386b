"""`penstock sql`: query the state of a running job."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.shown_errors import ShownErrors


def sql(
    job: Annotated[str, typer.Argument(help="The id of the job, or its name.")],
    query: Annotated[str, typer.Argument(help="A SELECT statement; its tables are the queryable states of the job.")],
    host: Annotated[str, typer.Option("--host", help="The host of the proxy.")] = "localhost",
    port: Annotated[int, typer.Option("--port", help="The port of the proxy.")] = 9069,
    token_file: Annotated[
        str | None, typer.Option("--token-file", help="The file with the token; that of this host by default.")
    ] = None,
    authorities: Annotated[str, typer.Option("--ca", help="Use TLS, and trust the authorities in this PEM file.")] = "",
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", help="The checkpoint; the newest by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each row as a JSON object.")] = False,
) -> None:
    """Query the queryable states of a running job with SQL, all at one checkpoint."""
    from penstock.query.client import QueryableStateClient
    from penstock.query.sql import connect_duckdb

    with (
        ShownErrors(),
        QueryableStateClient(host, port, token_file=token_file, authorities=authorities) as client,
        connect_duckdb(client, job, checkpoint) as database,
    ):
        found = database.sql(query)
        if not as_json:
            typer.echo(str(found))
            typer.echo(f"Checkpoint {database.checkpoint}.")
            return
        for row in found.to_arrow_table().to_pylist():
            typer.echo(json.dumps(row, default=str))
