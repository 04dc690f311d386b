"""`penstock state-server`: serve the queryable state of a job from its checkpoints."""

from __future__ import annotations

import json
import signal
import threading
from typing import Annotated, NoReturn

import typer

from penstock.cli.overrides import Setting, overrides_of
from penstock.cli.shown_errors import ShownErrors
from penstock.common.options import canonical, check_keys, check_values, store_options, surrounding_settings

_HAND_OVER_S = 5.0
_INTERRUPTIBLE_S = 0.5
"""An interrupt that arrives while the process is stopped can go to another thread, and does not end a wait."""

# Commands import what they need themselves, to keep `penstock run` fast.


def state_server(
    job: Annotated[str, typer.Argument(help="The job's folder below state.checkpoints.dir, as a path or URI.")],
    job_id: Annotated[
        str, typer.Option("--job-id", help="The id under which clients ask for it; the name of the folder by default.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
    settings: Setting = None,
) -> None:
    """Serve the queryable state of a job until Ctrl-C or SIGTERM. Needs only its checkpoints.

    All servers of a job divide its state among themselves, and take over from each other. On another host, set
    queryable-state.bind-address and a certificate, and use the token file of the others.
    """
    from penstock.checkpoint.job_directories import owner_of
    from penstock.query.launching import raise_file_limit
    from penstock.query.server import StateServer
    from penstock.savepoint.format import savepoint_storage

    with ShownErrors():
        overrides = overrides_of(settings)
        check_keys(overrides)
        check_values(overrides)
        found = canonical(surrounding_settings() | overrides)
        root = savepoint_storage(job, store_options(found))
        folder = root.where.rstrip("/").rsplit("/", 1)[-1]
        server = StateServer(found)
        # A supervisor that stops the server lets it hand over its blocks too.
        signal.signal(signal.SIGTERM, _interrupt)
        raise_file_limit()
        try:
            server.follow(job_id or folder, owner_of(root) or folder, root)
            server.start()
            if as_json:
                typer.echo(json.dumps({"directory": root.where, "address": server.address}, indent=2))
            else:
                typer.echo(f"Serving {root.where} on {server.address}. End with Ctrl-C.")
            end = threading.Event()
            while not end.wait(_INTERRUPTIBLE_S):
                pass
        except KeyboardInterrupt:
            server.hand_over(_HAND_OVER_S)
            if not as_json:
                typer.echo("Stopped.")
        finally:
            server.close()


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
