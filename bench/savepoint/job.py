"""The job of `bench.state`: a savepoint is made of it and it is rescaled while it runs, or it begins with a savepoint.

The last line of its output is JSON. It kills itself at last: the JVM's own shutdown is nobody's business here.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from bench.settings import PARALLELISM
from bench.state.job import replacing


def live(options: argparse.Namespace) -> None:
    """`--epochs` ordinary epochs after the load, as many beside and after a savepoint, `--wide` after a rescale, and
    again ordinary ones after another; then a savepoint with which it stops."""
    env = replacing(Path(options.work), options.backend, options.input)
    epochs: list[float] = []
    told: dict[str, Any] = {}
    ready, over = threading.Event(), threading.Event()

    def save() -> None:
        began = time.time()
        told["savepoint"] = client.trigger_savepoint(options.savepoints).result()
        told["savepoint_s"] = time.time() - began
        told["epochs_meanwhile"] = len(epochs) - options.load - options.epochs

    def on_epoch(epoch: Any) -> None:
        ready.wait()
        if not epoch.records:
            return
        epochs.append(epoch.cycle_ms)
        done = len(epochs) - options.load
        if done == 0:
            # What was loaded is written to the disk by and by, on the same cores: not while something is measured.
            os.sync()
        elif done == options.epochs:
            # Beside the epochs that follow, so nobody waits for it here.
            threading.Thread(target=save).start()
        elif done == 2 * options.epochs:
            client.rescale(2 * PARALLELISM)
        elif done == 2 * options.epochs + options.wide:
            client.rescale(PARALLELISM)
        elif done == 3 * options.epochs + options.wide:
            over.set()

    env.add_epoch_listener(on_epoch)
    client = env.execute_async("bench-savepoint")
    ready.set()
    over.wait()
    told["stopped"] = client.stop_with_savepoint(savepoint_directory=options.savepoints).result()
    measured = iter(epochs[options.load :])
    lengths = {"ordinary": options.epochs, "saved": options.epochs, "wide": options.wide, "narrow": options.epochs}
    tell(told | {part: list(islice(measured, length)) for part, length in lengths.items()})


def restored(options: argparse.Namespace) -> None:
    """Begin with a savepoint at twice the parallelism, and end after the first epoch."""
    env = replacing(
        Path(options.work), options.backend, options.input, parallelism=2 * PARALLELISM, savepoint=options.restore
    )

    def on_epoch(epoch: Any) -> None:
        if epoch.records:
            tell({"first": time.time(), "state_bytes": epoch.state_bytes})

    env.add_epoch_listener(on_epoch)
    env.execute("bench-savepoint")


def tell(told: dict[str, Any]) -> NoReturn:
    sys.stdout.write("\n" + json.dumps(told) + "\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--savepoints", help="where they are made")
    parser.add_argument("--load", type=int, help="files to load before anything is measured")
    parser.add_argument("--epochs", type=int, help="ordinary ones, each of the three times")
    parser.add_argument("--wide", type=int, help="epochs at twice the parallelism")
    parser.add_argument("--restore", help="a savepoint to begin with")
    chosen = parser.parse_args()
    restored(chosen) if chosen.restore else live(chosen)
