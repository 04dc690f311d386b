"""Builds the job of a program without running it, in a separate process: its plan, or its comparison with a savepoint.

    python -m penstock.cluster.inspection <folder> <file descriptor>

The Dispatcher runs no code of users. It writes the program and an order to a folder, starts this module, and reads the
result from the folder. The process ends with the Dispatcher, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from penstock.cluster.gateway import RunRequest, Timeout
from penstock.cluster.launcher import child_environment
from penstock.cluster.program import prepare, unpack
from penstock.common.configuration import Configuration
from penstock.common.error_format import short_form
from penstock.common.json_text import in_utf_8
from penstock.common.masking import masked_text, secrets_of, secrets_of_arguments
from penstock.common.options.checkpoints import CLAIM_MODE, IGNORE_UNCLAIMED_STATE, RECOVERY_PATH
from penstock.common.options.program import PARALLELISM
from penstock.common.program_files import BadProgram
from penstock.datastream.dependencies import import_configured
from penstock.datastream.guarantees import is_single_epoch
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.program_runner import execute_program, user_traceback
from penstock.errors import PenstockError
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.graph.plan_json import plan_of
from penstock.savepoint.comparison import compare, summary
from penstock.savepoint.settings import restore_settings

_TIMEOUT_S = 60.0
_FOLDERS = "inspection-"
_LAST_BYTES = 64 << 10
"""Of the output, which can have any length."""
_PROGRAM, _ORDER, _RESULT, _ERROR, _OUTPUT = "upload", "order.json", "result.json", "error.txt", "output.txt"


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name under which the program was uploaded."""
    request: RunRequest
    defaults: dict[str, str]


class _Found(BaseException):
    """Ends the program where it would execute its job. Not an Exception, so the program does not catch it."""


async def inspect(
    program: bytes, name: str, request: RunRequest, defaults: Mapping[str, str], parent: Path, *, savepoint: bool
) -> str:
    """Return the plan of a program's job as JSON, or with `savepoint` its comparison with the request's savepoint.

    Raises BadProgram with the program's error, Timeout.
    """
    secrets = secrets_of({**defaults, **request.configuration}) | secrets_of_arguments(request.arguments)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDERS, dir=parent))
    try:
        (folder / _PROGRAM).write_bytes(program)
        if not savepoint:
            request = msgspec.structs.replace(request, savepoint="")
        order = _Order(name=name, request=request, defaults=dict(defaults))
        (folder / _ORDER).write_bytes(msgspec.json.encode(order))
        await _run(folder)
        if (folder / _RESULT).exists():
            return (folder / _RESULT).read_text()
        with suppress(FileNotFoundError):
            raise BadProgram(
                masked_text((folder / _ERROR).read_text(), secrets), fix="Correct the program and upload it again."
            )
        last = _end_of(folder / _OUTPUT).strip().splitlines()[-5:]
        output = masked_text(" / ".join(last), secrets) or "none"
        raise BadProgram(
            f"The program ended before it executed a job. Its last output: {output}",
            fix="Run it with `penstock plan` to see all of its output.",
        )
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, True)


def remove_left_inspections(parent: Path) -> None:
    """Remove the folders of inspections whose Dispatcher was killed. They contain settings of jobs in clear."""
    for folder in parent.glob(f"{_FOLDERS}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _end_of(path: Path) -> str:
    """Return the last lines. One that is not complete is left out: the part of a secret would not be masked."""
    with open(path, "rb") as file:
        start = max(0, path.stat().st_size - _LAST_BYTES)
        file.seek(start)
        text = file.read().decode(errors="replace")
    return text.partition("\n")[2] if start else text


async def _run(folder: Path) -> None:
    # Nothing is ever written: the end of this process closes `ours`, which the other process notices.
    theirs, ours = os.pipe()
    try:
        await _run_until_end_of(theirs, folder)
    finally:
        os.close(ours)


async def _run_until_end_of(theirs: int, folder: Path) -> None:
    try:
        with open(folder / _OUTPUT, "wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock.cluster.inspection", str(folder), str(theirs)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=child_environment(),
                start_new_session=True,
                pass_fds=[theirs],
            )
    finally:
        os.close(theirs)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        raise Timeout(
            f"The program did not execute a job within {_TIMEOUT_S:g} s.", fix="Submit it as a job instead."
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def main() -> None:
    folder, dispatcher = Path(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(dispatcher, False)
    threading.Thread(target=_end_with, args=[dispatcher], name="penstock-dispatcher", daemon=True).start()
    order = msgspec.json.decode((folder / _ORDER).read_bytes(), type=_Order)
    try:
        _inspect(folder, order)
    except _Found:
        pass
    except PenstockError as error:
        (folder / _ERROR).write_text(in_utf_8(short_form(error)))
    except Exception as error:
        (folder / _ERROR).write_text(in_utf_8(user_traceback(error)))


def _end_with(dispatcher: int) -> None:
    """Kill all processes of the program once the Dispatcher, which has the other end of this pipe, has ended."""
    os.read(dispatcher, 1)
    os.killpg(0, signal.SIGKILL)


def _inspect(folder: Path, order: _Order) -> None:
    request = order.request
    unpack(folder / _PROGRAM, folder / "program", order.name)
    program = prepare(folder / "program", request.entry)

    def found(name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration) -> NoReturn:
        if request.savepoint:
            from penstock.spark.sources import sources_in_log

            restore = restore_settings(configuration)
            assert restore is not None
            result: object = summary(name, compare(physical, sources_in_log(logical, physical), restore))
        else:
            batch = is_single_epoch(logical, physical, configuration)
            result = plan_of(logical, physical) | {"batch": batch, "parallelism": configuration.get(PARALLELISM)}
        (folder / _RESULT).write_bytes(msgspec.json.encode(result))
        raise _Found

    settings = program.settings_with(request.configuration) | restore_keys(
        request.savepoint, request.claim_mode, request.allow_non_restored_state
    )
    launch(LaunchContext(settings=settings, defaults=order.defaults, inspect=found))
    os.chdir(program.program if program.program.is_dir() else program.program.parent)
    import_configured(order.defaults, settings)
    execute_program(program.program, request.arguments, program.module)


def restore_keys(savepoint: str, claim_mode: str, allow_non_restored_state: bool) -> dict[str, str]:
    """Return the settings that make a job start from a savepoint."""
    if not savepoint:
        return {}
    settings = {
        RECOVERY_PATH.key: savepoint,
        IGNORE_UNCLAIMED_STATE.key: str(allow_non_restored_state).lower(),
    }
    return settings | ({CLAIM_MODE.key: claim_mode} if claim_mode else {})


if __name__ == "__main__":
    main()
