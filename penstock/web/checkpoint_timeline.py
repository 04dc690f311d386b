"""The timeline of a checkpoint: a row per chain, and what the driver does when all tasks have acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.driver.job_snapshot import CheckpointSnapshot, TaskCheckpoint
from penstock.web.markup import Markup, tag
from penstock.web.quantities import duration

_WIDTH, _HEIGHT = 280, 72
_ROW = 9.0

Part = tuple[str, str, int]
"""The style, the name and the length in milliseconds of a part."""

_LEGEND = (
    ("s5", "trigger: waiting for the stage"),
    ("s4", "align channels"),
    ("s0", "process records"),
    ("s1", "snapshot state"),
    ("s3", "upload"),
    ("s2", "publish"),
    ("s6", "commit sinks"),
)


def timeline_legend() -> Markup:
    """Return what the colours mean."""
    return tag(
        "p", *(tag("span", tag("i", class_=f"swatch {style}"), text) for style, text in _LEGEND), class_="legend"
    )


def whole_ms(checkpoint: CheckpointSnapshot) -> int:
    """Return the time from the trigger until the sinks have committed."""
    return checkpoint.duration_ms + max(0, checkpoint.commit_ms)


def parts_of_task(task: TaskCheckpoint) -> list[Part]:
    """Return the parts of a chain in order. They are those of its slowest subtasks, so they are cut to fit."""
    left = task.duration_ms
    lengths: dict[str, int] = {}
    for name, wanted in (
        ("trigger", task.start_delay.max),
        ("upload", task.upload_ms),
        ("snapshot", task.sync_duration.max - task.upload_ms),
        ("align", task.align_ms),
    ):
        lengths[name] = max(0, min(wanted, left))
        left -= lengths[name]
    return [
        ("s5", "trigger", lengths["trigger"]),
        ("s4", "align", lengths["align"]),
        ("s0", "process", left),
        ("s1", "snapshot", lengths["snapshot"]),
        ("s3", "upload", lengths["upload"]),
    ]


def parts_of_driver(checkpoint: CheckpointSnapshot) -> tuple[int, list[Part]]:
    """Return when the driver begins to publish, after the trigger, and its parts."""
    acknowledged = max((task.duration_ms for task in checkpoint.tasks), default=0)
    rest = max(0, checkpoint.duration_ms - acknowledged)
    publish = rest if checkpoint.publish_ms < 0 else min(rest, checkpoint.publish_ms)
    return checkpoint.duration_ms - publish, [
        ("s2", "publish", publish),
        ("s6", "commit", max(0, checkpoint.commit_ms)),
    ]


def timeline(checkpoint: CheckpointSnapshot, names: dict[str, str], longest: int) -> Markup:
    """Return the drawing, on a scale on which `longest` milliseconds fill the width."""
    scale = _WIDTH / max(1, longest)
    # Many chains share the height of eight.
    step = min(_ROW, _HEIGHT / max(1, len(checkpoint.tasks)))
    rows = [
        _bars(names.get(task.vertex, task.vertex), parts_of_task(task), 0, scale, (place * step, max(1.0, step - 2)))
        for place, task in enumerate(checkpoint.tasks)
    ]
    height = max(8, round(step * len(rows)))
    begin, parts = parts_of_driver(checkpoint)
    driver = _bars("Driver", parts, begin, scale, (0.0, max(7, height - 2)))
    return tag(
        "svg",
        *rows,
        driver,
        width=_WIDTH + 4,
        height=height,
        viewBox=f"0 0 {_WIDTH + 4} {height}",
        role="img",
        aria_label="Timeline",
    )


def _bars(who: str, parts: Sequence[Part], begin: int, scale: float, place: tuple[float, float]) -> Markup:
    x, (y, height) = scale * begin, place
    bars = []
    for style, _, length in parts:
        width = scale * length
        if length:
            where = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
            bars.append(tag("rect", **where, class_=f"bar {style}"))
        x += width
    lengths = ", ".join(f"{name} {duration(length)}" for _, name, length in parts)
    return tag("g", tag("title", f"{who}: {lengths}"), *bars)
