"""The job of `bench.state` on three executors, one of which is killed repeatedly. Started by the parent.

The last line of its output is JSON. At the end it kills itself: the shutdown of the JVM is not measured.
"""

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

from bench.masters import EXECUTORS, LARGER_CLUSTER
from bench.savepoint.job import tell
from bench.state.job import replacing
from chaos.processes import below
from penstock.common.options.state import LOCAL_DIRECTORIES, STANDBY_REPLICAS

_EXECUTOR = "CoarseGrainedExecutorBackend"
_NOTICED_S = 30.0


class Cluster:
    """The executors of the job."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext._jsc.sc()
        self._jvm = spark.sparkContext._jvm

    def lose_one(self) -> None:
        """Kill an executor. Return when Spark has noticed, which takes some milliseconds."""
        # Otherwise Spark starts another one at once, whose JVM would compete with the epoch.
        self._request(EXECUTORS - 1)
        alive = self.alive()
        found = (each for each in below(os.getpid()) if _EXECUTOR in each.arguments())
        next(found).send(signal.SIGKILL)
        self._await(alive - 1)

    def replace(self) -> None:
        """Start another executor."""
        self._request(EXECUTORS)
        self._await(EXECUTORS)

    def alive(self) -> int:
        return len(list(filter(None, str(self._context.getExecutorIds().mkString(",")).split(","))))

    def _request(self, total: int) -> None:
        nothing = self._jvm.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
        self._context.requestTotalExecutors(total, 0, nothing)

    def _await(self, count: int) -> None:
        until = time.monotonic() + _NOTICED_S
        while self.alive() != count:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.alive()} executors instead of {count} after {_NOTICED_S:.0f} s")
            time.sleep(0.002)


def run(options: argparse.Namespace) -> None:
    """Lose an executor `--losses` times, each time after `--epochs` ordinary epochs, and replace it `--after` later."""
    env = replacing(
        Path(options.work),
        options.backend,
        options.input,
        parallelism=2 * EXECUTORS,
        master=LARGER_CLUSTER,
        # Relative to the working directory of each executor: executors do not share replicas.
        settings={LOCAL_DIRECTORIES.key: "replicas", STANDBY_REPLICAS.key: str(options.standbys)},
    )
    cluster = Cluster(env.spark)
    ordinary: list[float] = []
    after: list[list[float]] = []
    done = 0

    def on_epoch(epoch: Any) -> None:
        nonlocal done
        if not epoch.records:
            return
        done += 1
        # One round: warm-up epochs, ordinary epochs, the epochs after the loss.
        number = (done - options.load - 1) % (options.settle + options.epochs + options.after) + 1
        if done <= options.load or number <= options.settle:
            return
        lost = number - options.settle - options.epochs
        if lost <= 0:
            ordinary.append(epoch.duration_ms)
            if lost == 0:
                after.append([])
                cluster.lose_one()
            return
        after[-1].append(epoch.duration_ms)
        if lost == options.after:
            if len(after) == options.losses:
                tell({"ordinary": ordinary, "after": after})
            cluster.replace()

    env.add_epoch_listener(on_epoch)
    env.execute("bench-standbys")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--standbys", type=int, required=True)
    parser.add_argument("--load", type=int, required=True, help="number of files to load before the measurement")
    parser.add_argument("--settle", type=int, required=True, help="epochs after a change of the executors")
    parser.add_argument("--epochs", type=int, required=True, help="ordinary epochs before each loss")
    parser.add_argument("--after", type=int, required=True, help="epochs after each loss")
    parser.add_argument("--losses", type=int, required=True)
    run(parser.parse_args())
