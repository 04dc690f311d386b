"""`penstock state`: inspect the state of running jobs, savepoints and checkpoints, without the code of the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.overrides import Setting
from penstock.cli.service_address import Address
from penstock.cli.shown_errors import ShownErrors

# Commands import the state readers themselves, to keep `penstock run` fast.

state_app = typer.Typer(
    name="state",
    help="Inspect the state of running jobs, savepoints and checkpoints.",
    no_args_is_help=True,
    add_completion=False,
)
_WHERE = typer.Argument(
    metavar="JOB|PATH",
    help="The id or name of a running job; or a savepoint, or a job's folder below state.checkpoints.dir, as a path "
    "with a slash or a URI.",
)
_UID = typer.Argument(help="The operator's uid.")
_STATE = typer.Argument(help="The state's name, or 'timers'.")
_JSON = typer.Option("--json", help="Print the result as JSON.")


@state_app.command(name="ls")
def ls(
    where: Annotated[str, _WHERE],
    as_json: Annotated[bool, _JSON] = False,
    address: Address = None,
    setting: Setting = None,
) -> None:
    """List the operators and their states."""
    from penstock.cli.job_state import JobState, is_path
    from penstock.tables.checkpoint import open_snapshot

    with ShownErrors():
        found = (open_snapshot(where) if is_path(where) else JobState.of(where, address, setting)).states()
        if as_json:
            typer.echo(_json(found))
            return
        for uid in dict.fromkeys(info.uid for info in found):
            infos = [info for info in found if info.uid == uid]
            typer.echo(f"{uid}: {infos[0].operator}")
            for info in infos:
                lives = "" if info.ttl_ms is None else f", time to live {info.ttl_ms} ms"
                typer.echo(f"  {info.name}: {info.kind} {info.type}{lives}")


@state_app.command(name="get")
def get(
    where: Annotated[str, _WHERE],
    uid: Annotated[str, _UID],
    state: Annotated[str, _STATE],
    key: Annotated[
        str | None, typer.Argument(help="Only this key. Write a key of several fields as a JSON list.")
    ] = None,
    limit: Annotated[int, typer.Option("-l", "--limit", min=0, help="Maximum number of rows; 0 shows all.")] = 100,
    as_json: Annotated[bool, _JSON] = False,
    address: Address = None,
    setting: Setting = None,
) -> None:
    """Print the rows of a state, one per line."""
    from penstock.cli.job_state import JobState, is_path

    with ShownErrors(), ExitStack() as stack:
        if is_path(where):
            rows = _rows_at(where, uid, state, key)
        else:
            found = stack.enter_context(
                JobState.of(where, address, setting).rows(uid, state, key, limit + 1 if limit else None)
            )
            rows = found.rows
            typer.echo(f"Checkpoint {found.checkpoint}.", err=True)
        shown = list(islice(rows, limit or None))
        more = next(rows, None) is not None
        if as_json:
            typer.echo(_json(shown))
        else:
            for row in shown:
                typer.echo("  ".join(f"{name}={_text(value)}" for name, value in row.items()))
        if more:
            typer.echo(f"There are more than {limit} rows. Pass --limit 0 to see all.", err=True)
        if key is not None and not shown:
            typer.echo(f"The key {key} has no value in this state.", err=True)
            raise typer.Exit(1)


def _rows_at(path: str, uid: str, state: str, key: str | None) -> Iterator[dict[str, Any]]:
    from penstock.tables.checkpoint import open_snapshot
    from penstock.tables.typed_keys import key_from_text

    table = open_snapshot(path).state(uid, state)
    return table.rows() if key is None else iter(table.get(key_from_text(table, key)))


@state_app.command(name="history")
def history_(
    where: Annotated[
        str,
        typer.Argument(
            metavar="JOB|DIRECTORY",
            help="The id or name of a running job; or a job's folder of checkpoints, or a directory of savepoints, as "
            "a path with a slash.",
        ),
    ],
    uid: Annotated[str, _UID],
    state: Annotated[str, _STATE],
    key: Annotated[str, typer.Argument(help="The key. Write a key of several fields as a JSON list.")],
    as_json: Annotated[bool, _JSON] = False,
    address: Address = None,
    setting: Setting = None,
) -> None:
    """Print the state of a key in every existing checkpoint and savepoint, oldest first."""
    from penstock.cli.job_state import JobState, is_path
    from penstock.tables import history
    from penstock.tables.typed_keys import key_in

    with ShownErrors():
        if is_path(where):
            moments = history(where, uid, state, key_in(where, uid, state, key))
        else:
            moments = JobState.of(where, address, setting).history(uid, state, key)
        if as_json:
            typer.echo(_json([moment._asdict() for moment in moments]))
            return
        for moment in moments:
            typer.echo(f"{moment.checkpoint}  {moment.time}  {_text(moment.value)}")


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value) if isinstance(value, bytes) else _json(value)
