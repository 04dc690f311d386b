"""Runs one way of counting in a process of its own, so that no JVM disturbs the next."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.plan import COMMANDS, Line, Way
from bench.result import Result
from bench.workload import write_input

# The slowest way takes two minutes on two cores, fifteen with --same-epochs.
TIMEOUT_SECONDS = 3600


class WayFailed(Exception):
    """A way ended without a result; the message holds the end of its stderr."""


def measure(line: Line, way: Way, inputs: Path, tree: Path | None = None) -> Result:
    """Run one way in a fresh process. `tree`: the checkout whose code it runs; by default this one."""
    workload = line.workloads[way]
    kind = "-timed" if workload.timed else ""
    input_dir = inputs / f"{workload.keys}-{workload.records}-{workload.epochs}{kind}"
    if not input_dir.exists():
        write_input(workload, input_dir)
    with tempfile.TemporaryDirectory(dir=inputs) as work:
        module, *told = COMMANDS[way]
        command = [sys.executable, "-m", module, str(input_dir), work, str(workload.warmup), *told]
        env = None if tree is None else {**os.environ, "PYTHONPATH": str(tree)}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=tree, env=env)
        except subprocess.TimeoutExpired:
            raise WayFailed(f"{way} on {line.title}: no result in {TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        end = "\n".join(done.stderr.splitlines()[-25:])
        raise WayFailed(f"{way} on {line.title}: exit status {done.returncode}\n{end}")
    return Result.parse(done.stdout)
