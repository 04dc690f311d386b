"""The final comparison: the output, state and savepoints of the finished job against the expected ones."""

from __future__ import annotations

from pathlib import Path

from chaos import oracle
from chaos.committed import committed_states, saved_states
from chaos.damage import lineages
from chaos.ends.files import FileEnds
from chaos.ends.served import ServedEnds
from chaos.program import SOURCE
from penstock.connectors.files.part_files import token_of
from penstock.savepoint.format import list_savepoints, savepoint_storage
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import last_manifest


def check_finished(work: Path, ends: FileEnds | ServedEnds, backend: str, total: int, left: int) -> list[str]:
    """Return the violations. `left` is the number of lineages that the job left with a savepoint."""
    wanted = oracle.expected(range(total))
    runs = ends.output()
    if backend == "memory":
        # Every driver is a separate run, and the last one must have written everything.
        last = max(runs, key=lambda run: runs[run].lines.total(), default=None)
        return oracle.check_output(runs, wanted, last)
    lineage = lineages(work / "checkpoints")[-1]
    if set(runs) == {"all"}:
        # A table does not record which run wrote a row.
        runs_of_job, output = runs, runs["all"]
    elif left and len(runs) <= left + 1:
        runs_of_job = {"all": oracle.together(runs)}
        output = runs_of_job["all"]
    else:
        runs_of_job = runs
        token = token_of(last_manifest(LocalStorage(lineage)).lineage, "files")
        output = runs.get(token, oracle.Output())
    violations = oracle.check_output(runs_of_job, wanted)
    states, timers = committed_states(lineage, ends.where())
    violations += oracle.check_states(states, wanted, output)
    violations += [f"a timer is still set: {timer}" for timer in timers[:5]]
    if ends.output() != runs:
        violations.append("reading the state of the finished job changed its output")
    return violations + (ends.check(wanted) if isinstance(ends, ServedEnds) else [])


def check_savepoints(work: Path, ends: FileEnds | ServedEnds) -> list[str]:
    """Check that each savepoint is incomplete, or holds exactly the state of the records it has read."""
    violations = []
    elsewhere = {**ends.where(), "out": str(work / "unused")}
    for found in list_savepoints(savepoint_storage(str(work / "savepoints"))):
        if found.metadata is None:
            if "is not complete" not in found.problem:
                violations.append(f"{found.where}: {found.problem}")
            continue
        held, numbers = saved_states(found.where, elsewhere)
        records = found.metadata.sources[SOURCE].records
        # A server can have received records in a different order.
        if len(numbers) != records or (isinstance(ends, FileEnds) and numbers != list(range(records))):
            violations.append(f"{found.where}: it has read {records} records, but holds state of {len(numbers)}")
        wanted = oracle.expected(numbers).states
        violations += [
            f"{found.where}: '{name}' of '{operator}' does not match the records it has read"
            for operator, name in held
            if held[operator, name] != wanted[operator, name]
        ]
    return violations
