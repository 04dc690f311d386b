"""The charts of a job: the usual ones, and those of metrics that the viewer chose, which the browser remembers."""

from __future__ import annotations

import json
from collections.abc import Callable

from nicegui import ui

from penstock.driver.job_snapshot import JobSnapshot
from penstock.web.board import Board
from penstock.web.chosen_metrics import choices
from penstock.web.job_sections import charts, chosen_chart
from penstock.web.markup import Markup, join, tag

_MOST = 20
"""Charts that a viewer can add."""
_LONGEST = 400
"""Characters of a key that the browser remembers."""

Live = Callable[[Callable[[], Markup]], Callable[[], None]]
"""Shows contents and keeps them current. The result refreshes them at once."""


def job_charts(board: Board, job: JobSnapshot, live: Live) -> None:
    """Show the charts of a job."""
    chosen: list[str] = []
    # A job that runs again has another id, and the same name.
    item = json.dumps(f"penstock.charts.{job.name}")

    with ui.element("div").classes("browser"):
        wanted = ui.select(
            choices(job), label="Metric", with_input=True, clearable=True, on_change=lambda: add()
        ).props("outlined dense options-dense")
        wanted.classes("wide")
        remove = ui.select({}, label="Remove a chart", on_change=lambda: leave()).props("outlined dense")
        remove.set_visibility(False)

    def usual() -> Markup:
        current = board.job(job.id)
        watch = board.watches.of(job.id)
        known = choices(current) if chosen else {}
        mine = [chosen_chart(known.get(key, key.rpartition(":")[2]), key, watch.follow(key)) for key in chosen]
        own = join(tag("h2", "Chosen charts"), tag("div", *mine, class_="charts")) if mine else None
        return join(own, tag("h2", "Charts") if mine else None, charts(current, watch))

    refresh = live(usual)

    def changed(*, save: bool = True) -> None:
        known = choices(board.job(job.id))
        remove.set_options({key: known.get(key, key) for key in chosen}, value=None)
        remove.set_visibility(bool(chosen))
        if save:
            ui.run_javascript(f"localStorage.setItem({item}, {json.dumps(json.dumps(chosen))})")
        refresh()

    def add() -> None:
        key = wanted.value
        if key is None:
            return
        wanted.set_value(None)
        if key not in chosen and len(chosen) < _MOST:
            chosen.append(key)
            changed()

    def leave() -> None:
        if remove.value in chosen:
            chosen.remove(remove.value)
            changed()

    async def restore() -> None:
        saved = await ui.run_javascript(f"localStorage.getItem({item})", timeout=10)
        chosen.extend(each for each in remembered(saved) if each not in chosen)
        if chosen:
            changed(save=False)

    ui.timer(0.1, restore, once=True)


def remembered(saved: object) -> list[str]:
    """Return the keys that a browser remembered. Whatever else it has is ignored."""
    try:
        found = json.loads(saved) if isinstance(saved, str) else []
    except ValueError:
        return []
    if not isinstance(found, list):
        return []
    return list(dict.fromkeys(each for each in found if isinstance(each, str) and len(each) <= _LONGEST))[:_MOST]
