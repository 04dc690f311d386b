"""`penstock sql`: query the state of a running job, a savepoint or a checkpoint."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Annotated

import typer

from penstock.cli.shown_errors import ShownErrors


def sql(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB|PATH",
            help="The id or name of a running job; or a savepoint, or a job's folder below state.checkpoints.dir, as a "
            "path with a slash or a URI.",
        ),
    ],
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT statement. Its tables are the queryable states of the job; of a path, all states: "
            '"uid.state", or the name of the state if only one operator has it.'
        ),
    ],
    host: Annotated[str, typer.Option("--host", help="The host of the proxy.")] = "localhost",
    port: Annotated[int, typer.Option("--port", help="The port of the proxy.")] = 9069,
    token_file: Annotated[
        str | None, typer.Option("--token-file", help="The file with the token; that of this host by default.")
    ] = None,
    authorities: Annotated[str, typer.Option("--ca", help="Use TLS, and trust the authorities in this PEM file.")] = "",
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", help="The checkpoint of a running job; the newest by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each row as a JSON object.")] = False,
) -> None:
    """Query the states of a running job, a savepoint or a checkpoint with SQL, all at one checkpoint."""
    from penstock.cli.job_state import is_path
    from penstock.query.client import QueryableStateClient
    from penstock.query.sql import connect_duckdb
    from penstock.tables.checkpoint import open_snapshot

    with ShownErrors(), ExitStack() as stack:
        if is_path(job):
            database = stack.enter_context(connect_duckdb(open_snapshot(job)))
        else:
            client = QueryableStateClient(host, port, token_file=token_file, authorities=authorities)
            database = stack.enter_context(connect_duckdb(stack.enter_context(client), job, checkpoint))
        found = database.sql(query)
        if not as_json:
            typer.echo(str(found))
            typer.echo(f"Checkpoint {database.checkpoint}.")
            return
        for row in found.to_arrow_table().to_pylist():
            typer.echo(json.dumps(row, default=str))
