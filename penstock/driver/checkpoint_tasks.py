"""The part of each vertex in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.checkpoint.manifest import Manifest
from penstock.driver.epoch_metrics import TaskSummary
from penstock.driver.job_snapshot import CheckpointSummary, TaskCheckpoint
from penstock.driver.report_totals import ReportTotals
from penstock.driver.vertices import parallelism_of, subtask_of, vertex_id
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain
from penstock.state.blocks import intersection
from penstock.state.key_groups import owner_of, range_of_subtask


def completed_tasks(
    graph: PhysicalGraph,
    parallelism: int,
    manifest: Manifest,
    reported: Mapping[int, Mapping[int, int]],
    arrived: Mapping[int, Sequence[TaskSummary]],
    triggered_at: int,
    duration_ms: int,
) -> list[TaskCheckpoint]:
    """Describe a completed checkpoint by vertex.

    `parallelism` is the job's. `reported`: bytes of state that tasks have reported, by chain and task. `arrived`: the
    metrics of tasks, by chain.
    """
    written = _written(graph, parallelism, reported)

    def since_trigger(moments: Iterable[int]) -> list[int]:
        # Two clocks are involved, and either might have jumped.
        return [min(max(0, at - triggered_at), duration_ms) for at in moments]

    tasks = []
    for chain in graph.chains:
        subtasks = parallelism_of(chain, parallelism)
        sizes = [written[chain.id].get(number, 0) for number in range(subtasks)]
        states = _state_by_subtask(chain, subtasks, manifest)
        found = arrived.get(chain.id, ())
        durations = since_trigger(task.acknowledged_at for task in found)
        last = max(durations, default=duration_ms)
        tasks.append(
            TaskCheckpoint(
                vertex=vertex_id(chain),
                subtasks=subtasks,
                latest_ack_ms=triggered_at + last,
                checkpointed_bytes=sum(sizes),
                state_bytes=sum(states),
                duration_ms=last,
                checkpointed=summary(sizes),
                state=summary(states),
                duration=summary(durations),
                sync_duration=summary([task.snapshot_ms for task in found]),
                start_delay=summary(since_trigger(task.started_at for task in found)),
                align_ms=max((task.align_ms for task in found), default=0),
                upload_ms=max((task.upload_ms for task in found), default=0),
            )
        )
    return tasks


def unfinished_tasks(
    graph: PhysicalGraph,
    parallelism: int,
    totals: ReportTotals,
    acknowledged: Mapping[tuple[int, int], int],
    triggered_at: int,
) -> list[TaskCheckpoint]:
    """Describe a checkpoint that only some tasks have acknowledged.

    `totals`: of their reports; it can still grow. `acknowledged`: milliseconds after the trigger, by chain and subtask.
    `triggered_at`: milliseconds since 1970.
    """
    arrived: dict[int, dict[int, int]] = {chain.id: {} for chain in graph.chains}
    for (chain_id, task), after_ms in acknowledged.items():
        cells, number = arrived[chain_id], subtask_of(graph.chains[chain_id], task, parallelism)
        cells[number] = max(after_ms, cells.get(number, 0))
    written = _written(graph, parallelism, {chain: tasks.copy() for chain, tasks in totals.by_task.copy().items()})
    tasks = []
    for chain in graph.chains:
        subtasks, got, sizes = parallelism_of(chain, parallelism), arrived[chain.id], written[chain.id]
        # Spark can read a source in fewer tasks than its parallelism. They report together.
        done = bool(got) if chain.source_uid is not None else False
        last = max(got.values(), default=0)
        tasks.append(
            TaskCheckpoint(
                vertex=vertex_id(chain),
                subtasks=subtasks,
                missing=[] if done else [number for number in range(subtasks) if number not in got],
                latest_ack_ms=triggered_at + last if got else -1,
                checkpointed_bytes=sum(sizes.values()),
                duration_ms=last,
                checkpointed=summary(list(sizes.values())),
                duration=summary(list(got.values())),
            )
        )
    return tasks


def _written(
    graph: PhysicalGraph, parallelism: int, reported: Mapping[int, Mapping[int, int]]
) -> dict[int, dict[int, int]]:
    """Return the bytes of state that tasks have reported, by chain and subtask."""
    written: dict[int, dict[int, int]] = {chain.id: {} for chain in graph.chains}
    for chain, tasks in reported.items():
        cells = written[chain]
        for task, size in tasks.items():
            number = subtask_of(graph.chains[chain], task, parallelism)
            cells[number] = cells.get(number, 0) + size
    return written


def _state_by_subtask(chain: Chain, subtasks: int, manifest: Manifest) -> list[int]:
    """Return the bytes of state by subtask. A block that several share counts by their numbers of key groups."""
    shares = [0.0] * subtasks
    for operator in chain.operators:
        stored = manifest.operators.get(operator.uid)
        for state in stored.operator_state.values() if stored is not None else ():
            # Spark can read a source in more tasks than its parallelism.
            for number, elements in enumerate(state.by_subtask):
                shares[number % subtasks] += sum(map(len, elements))
        most = chain.max_parallelism
        for groups, size in _sizes(operator.uid, manifest):
            for number in range(owner_of(groups.start, subtasks, most), owner_of(groups.stop - 1, subtasks, most) + 1):
                common = intersection(range_of_subtask(number, subtasks, most), groups)
                shares[number] += size * len(common) / len(groups)
    return _whole(shares)


def _sizes(uid: str, manifest: Manifest) -> Iterator[tuple[range, int]]:
    """Yield the bytes of the bases of an operator and of the deltas since, with the key groups that they belong to."""
    for first, base in manifest.bases.get(uid, {}).items():
        if base.size:
            yield range(first, base.end), base.size
    for block, size in manifest.since_base.get(uid, {}).items():
        yield manifest.blocks[uid].groups(block), size


def _whole(shares: list[float]) -> list[int]:
    """Round down, and give the remainder to the first, which keeps the sum."""
    whole = [int(share) for share in shares]
    if whole:
        whole[0] += round(sum(shares)) - sum(whole)
    return whole


def summary(values: Sequence[int | float]) -> CheckpointSummary:
    """Return minimum, maximum, mean and percentiles; zeros without values."""
    if not values:
        return CheckpointSummary()
    ordered = sorted(values)

    def percentile(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))

    return CheckpointSummary(
        min=round(ordered[0]),
        max=round(ordered[-1]),
        avg=round(sum(ordered) / len(ordered)),
        p50=percentile(0.5),
        p90=percentile(0.9),
        p95=percentile(0.95),
        p99=percentile(0.99),
        p999=percentile(0.999),
    )
