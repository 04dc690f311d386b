"""Run one implementation in its own process, so that every one gets a fresh JVM."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.plan import COMMANDS, Line, Way
from bench.result import Result
from bench.workload import write_input

# The slowest implementation takes two minutes on two cores, fifteen with --same-epochs.
TIMEOUT_SECONDS = 3600


class WayFailed(Exception):
    """An implementation exited without a result; the message includes the end of its stderr."""


def measure(line: Line, way: Way, inputs: Path, tree: Path | None = None) -> Result:
    """Run one implementation in a fresh process. `tree` is the checkout to run; this one by default."""
    workload = line.workloads[way]
    kind = "-timed" if workload.timed else ""
    input_dir = inputs / f"{workload.keys}-{workload.records}-{workload.epochs}{kind}"
    if not input_dir.exists():
        write_input(workload, input_dir)
    with tempfile.TemporaryDirectory(dir=inputs) as work:
        module, *extra = COMMANDS[way]
        command = [sys.executable, "-m", module, str(input_dir), work, str(workload.warmup), *extra]
        env = None if tree is None else {**os.environ, "PYTHONPATH": str(tree)}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=tree, env=env)
        except subprocess.TimeoutExpired:
            raise WayFailed(f"{way} on {line.title}: no result in {TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        end = "\n".join(done.stderr.splitlines()[-25:])
        raise WayFailed(f"{way} on {line.title}: exit status {done.returncode}\n{end}")
    return Result.parse(done.stdout)
