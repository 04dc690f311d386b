"""The driver on small simulated jobs: what grows, and how fast. `make bench-scale` measures the large ones."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.scale import __main__ as scale
from bench.scale.growth import Growth
from bench.scale.job import Figures, measure
from bench.scale.size import Size
from bench.scale.tasks import SimulatedTasks
from penstock.driver.epoch_errors import EpochFailed
from penstock.runtime.report import EdgeTotals

SIZES = {
    "subtasks": (4, 8, 16, 32, 64),
    "key_groups": (64, 128, 256, 512, 1024),
    "changed_keys": (2_000, 8_000, 32_000, 128_000, 512_000),
}
SMALL = {"subtasks": 8, "key_groups": 256, "changed_keys": 50_000}
COUNTED = (
    "manifest, KB",
    "reports, KB per epoch",
    "files created per epoch",
    "names listed per epoch",
    "restarted executor, MB read",
    "of these, manifests, MB",
)


@pytest.mark.parametrize("axis", list(SIZES))
def test_nothing_that_can_be_counted_grows_faster_than_the_job(axis: str, tmp_path: Path) -> None:
    figures = [
        measure(Size(**{**SMALL, axis: size}), str(tmp_path / str(size)), warm_up=4, epochs=3) for size in SIZES[axis]
    ]
    for quantity in COUNTED:
        values = [scale.QUANTITIES[quantity](each) for each in figures]
        exponent = Growth(SIZES[axis], values).exponent
        assert exponent <= scale.LIMIT, (quantity, values)


def test_deltas_of_many_tasks_do_not_make_a_manifest_large(tmp_path: Path) -> None:
    """A few keys per task would fit into the manifest, but 1,024 deltas together would take more than 5 MB."""
    size = Size(subtasks=256, key_groups=4096, changed_keys=16_000)
    assert measure(size, str(tmp_path), warm_up=1, epochs=1).manifest_bytes < 1_000_000


def test_the_driver_rejects_an_epoch_in_which_one_channel_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation passes the real checks: with another fingerprint in a single report, no epoch completes."""
    found = SimulatedTasks._channels

    def damaged(tasks: SimulatedTasks) -> Any:
        sent, received = found(tasks)
        (totals,) = received[2, 3]
        received[2, 3] = [EdgeTotals(**{**as_fields(totals), "fingerprint": totals.fingerprint ^ 1})]
        return sent, received

    monkeypatch.setattr(SimulatedTasks, "_channels", damaged)
    with pytest.raises(EpochFailed, match=r"edge 1: sent .* received"):
        measure(Size(**SMALL), str(tmp_path), warm_up=1, epochs=1)


def as_fields(totals: EdgeTotals) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in totals.__struct_fields__}


def test_an_exponent_is_fitted_to_the_five_largest_sizes() -> None:
    growth = Growth((1, 2, 4, 8, 16, 32), [1e6, 2**2, 4**2, 8**2, 16**2, 32**2])
    assert (round(growth.exponent, 6), round(growth.at(64))) == (2.0, 64**2)


def test_a_quantity_that_is_always_zero_does_not_grow() -> None:
    assert Growth((1, 2, 4), (0, 0, 0)).exponent == 0


def figures(size: Size, power: float, manifest_bytes: float) -> Figures:
    return Figures(
        epochs_ms=[size.subtasks**power],
        manifest_bytes=manifest_bytes,
        memory_bytes=1,
        files=1,
        listed=0,
        collected_bytes=1,
        restart_bytes=1,
        restart_manifests_bytes=1,
        restarts_ms=[1],
        snapshot_ms=1,
        snapshot_bytes=1,
    )


@pytest.mark.parametrize(("power", "manifest_bytes", "status"), [(1.0, 4.9e6, 0), (1.2, 4.9e6, 1), (1.0, 5.1e6, 1)])
def test_the_check_fails_if_a_cost_grows_too_fast_or_the_manifest_is_too_large(
    power: float, manifest_bytes: float, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "_measured", lambda size: figures(size, power, manifest_bytes))
    monkeypatch.setattr("sys.argv", ["bench.scale", "--check", "--plot", str(tmp_path / "plot.svg")])
    assert scale.main() == status
    assert (tmp_path / "plot.svg").read_text().count("<polyline") == len(scale.DRAWN) * len(scale.AXES)


def test_the_lowest_cpu_time_of_several_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run during which the machine is slow does not look like growth."""
    slow = {size: turn for turn, size in enumerate(scale.AXES["subtasks"][3:])}
    runs: dict[int, int] = dict.fromkeys(slow, -1)

    def measured(size: Size) -> Figures:
        found = figures(size, 1.0, 1e6)
        if size == Size(subtasks=size.subtasks) and size.subtasks in slow:
            runs[size.subtasks] += 1
            if runs[size.subtasks] == slow[size.subtasks]:
                return msgspec.structs.replace(found, epochs_ms=[3 * found.cpu_ms])
        return found

    monkeypatch.setattr(scale, "_measured", measured)
    monkeypatch.setattr("sys.argv", ["bench.scale", "--check"])
    assert scale.main() == 0
    assert set(runs.values()) == {scale.ROUNDS["subtasks"] - 1}
