"""The job of `bench.state`, saved and rescaled while it runs, or started from a savepoint.

The last line of its output is JSON. At the end it kills itself: the shutdown of the JVM is not measured.
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

from bench.masters import PARALLELISM
from bench.state.job import replacing


def live(options: argparse.Namespace) -> None:
    """Run `--epochs` epochs after the load, as many during and after a savepoint, `--wide` after a rescale, and again
    `--epochs` after rescaling back; then stop with a savepoint."""
    env = replacing(Path(options.work), options.backend, options.input)
    epochs: list[float] = []
    report: dict[str, Any] = {}
    ready, over = threading.Event(), threading.Event()

    def save() -> None:
        began = time.time()
        report["savepoint"] = client.trigger_savepoint(options.savepoints).result()
        report["savepoint_s"] = time.time() - began
        report["epochs_meanwhile"] = len(epochs) - options.load - options.epochs

    def on_epoch(epoch: Any) -> None:
        ready.wait()
        if not epoch.records:
            return
        epochs.append(epoch.cycle_ms)
        done = len(epochs) - options.load
        if done == 0:
            # Flush the loaded data now, otherwise the disk would be busy with it during the measurement.
            os.sync()
        elif done == options.epochs:
            # Concurrent with the epochs that follow, so do not wait for it here.
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
    report["stopped"] = client.stop_with_savepoint(savepoint_directory=options.savepoints).result()
    measured = iter(epochs[options.load :])
    lengths = {"ordinary": options.epochs, "saved": options.epochs, "wide": options.wide, "narrow": options.epochs}
    tell(report | {part: list(islice(measured, length)) for part, length in lengths.items()})


def restored(options: argparse.Namespace) -> None:
    """Start from a savepoint at twice the parallelism, and exit after the first epoch."""
    env = replacing(
        Path(options.work), options.backend, options.input, parallelism=2 * PARALLELISM, savepoint=options.restore
    )

    def on_epoch(epoch: Any) -> None:
        if epoch.records:
            tell({"first": time.time(), "state_bytes": epoch.state_bytes})

    env.add_epoch_listener(on_epoch)
    env.execute("bench-savepoint")


def tell(report: dict[str, Any]) -> NoReturn:
    sys.stdout.write("\n" + json.dumps(report) + "\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--savepoints", help="directory for savepoints")
    parser.add_argument("--load", type=int, help="number of files to load before the measurement")
    parser.add_argument("--epochs", type=int, help="epochs in each of the three measured phases")
    parser.add_argument("--wide", type=int, help="epochs at twice the parallelism")
    parser.add_argument("--restore", help="savepoint to start from")
    chosen = parser.parse_args()
    restored(chosen) if chosen.restore else live(chosen)
