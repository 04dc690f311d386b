"""How environments, streams and jobs look in a notebook: plain text, and HTML with the plan and charts.

Nothing here starts Spark or raises: a notebook shows the value of a cell's last line without being asked.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from penstock.common.masking import masked_setting
from penstock.driver.job_snapshot import EpochSnapshot, JobSnapshot
from penstock.errors import PenstockError
from penstock.graph.picture import picture
from penstock.graph.plan_json import plan_of

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.environment import StreamExecutionEnvironment
    from penstock.graph.logical import Node

_WIDTH, _HEIGHT = 260, 60
_LEFT = "style='text-align:left'"
_MOST_EXCEPTION = 400
"""Characters of a failure that are shown."""

Facts = Mapping[str, object]


# -- environments and streams ------------------------------------------------------------------------------------------


def text_of_environment(env: StreamExecutionEnvironment) -> str:
    """Return an environment in one line."""
    operators = len(env._graph.nodes)
    return f"<StreamExecutionEnvironment with {operators} operator{'' if operators == 1 else 's'}>"


def html_of_environment(env: StreamExecutionEnvironment) -> str:
    """Return an environment with its plan and settings."""
    settings = env._configuration.to_dict()
    shown = {key: masked_setting(key, value) for key, value in sorted(settings.items())}
    return _page(
        "StreamExecutionEnvironment", _plan_of(env), _table({"operators": str(len(env._graph.nodes)), **shown})
    )


def text_of_stream(stream: DataStream[Any]) -> str:
    """Return a stream in one line, with the type of its records."""
    kind, node = type(stream).__name__, _node_of(stream)
    if node is None:
        return f"<{kind}: a union of {len(stream._inputs)} streams, of type {stream.get_type()!r}>"
    uid = f", uid {node.given_uid!r}" if node.given_uid else ", without a uid"
    return f"<{kind} of {node.name!r}{uid}, of type {stream.get_type()!r}>"


def html_of_stream(stream: DataStream[Any]) -> str:
    """Return a stream with its operator, the type of its records, and the plan of its environment."""
    facts: dict[str, object] = {"type": repr(stream.get_type())}
    node = _node_of(stream)
    if node is not None:
        facts = {
            "operator": node.name,
            "uid": node.given_uid or "none: set one to find its state again",
            **facts,
            "parallelism": node.parallelism or "that of the environment",
        }
    return _page(type(stream).__name__, _table(facts), _plan_of(stream._env))


def _node_of(stream: DataStream[Any]) -> Node | None:
    """Return the operator that produces the records, as the user declared it; None for a union."""
    if len(stream._inputs) != 1:
        return None
    nodes = stream._env._graph.nodes
    node = nodes[stream._inputs[0].node]
    return nodes[node.inputs[0].node] if node.of_source else node


def _plan_of(env: StreamExecutionEnvironment) -> str:
    if not env._graph.nodes:
        return "<p>No streams yet.</p>"
    try:
        return _image(picture(plan_of(env._graph, env._physical(env._parallelism_without_spark()))))
    except PenstockError as error:
        return f"<p>{escape(error.statement())}</p>" + (f"<p><b>Fix:</b> {escape(error.fix)}</p>" if error.fix else "")
    except Exception as error:
        return f"<p>The plan cannot be drawn: {escape(repr(error))}</p>"


# -- jobs --------------------------------------------------------------------------------------------------------------


def text_of_job(job: JobSnapshot) -> str:
    """Return a job in one line."""
    epochs = f"{job.epochs} epochs" if job.epochs else "no epoch yet"
    restarts = f", {job.restarts} restarts" if job.restarts else ""
    return f"<JobClient of '{job.name}', job {job.id}: {job.state}, {epochs}{restarts}>"


def html_of_job(job: JobSnapshot, charts: bool = False) -> str:
    """Return a job with its state and last checkpoint, and with `charts` also its plan and charts."""
    last = job.checkpoints.latest_completed
    facts: dict[str, object] = {
        "job": job.id,
        "state": job.state,
        "epochs": job.epochs,
        "restarts": job.restarts,
        "last checkpoint": f"{last.id}, took {last.duration_ms} ms, {last.state_bytes:,} bytes" if last else "none",
    }
    if job.exceptions:
        newest = job.exceptions[-1]
        facts["last failure"] = f"{newest.name}: {newest.message}"[:_MOST_EXCEPTION]
    if job.reason:
        facts["reason"] = job.reason
    parts = [_table(facts)]
    if charts:
        parts += [_drawn_plan(job), _charts(job.recent_epochs)]
    return _page(job.name, *parts)


def _drawn_plan(job: JobSnapshot) -> str:
    try:
        return _image(picture(json.loads(job.plan)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "<p>The plan cannot be drawn.</p>"


def _charts(epochs: Sequence[EpochSnapshot]) -> str:
    if not epochs:
        return "<p>No epoch has completed yet.</p>"
    rates = [1000 * each.records / each.cycle_ms if each.cycle_ms > 0 else 0.0 for each in epochs]
    charts = [
        _chart("Throughput", rates, lambda value: f"{value:,.0f} records/s"),
        _chart("Epoch duration", [each.duration_ms for each in epochs], lambda value: f"{value:,.0f} ms"),
        _chart("State size", [float(each.state_bytes) for each in epochs], lambda value: f"{value:,.0f} bytes"),
    ]
    return f'<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(charts)}</div>'


def _chart(title: str, values: Sequence[float], unit: Callable[[float], str]) -> str:
    highest = max(values) or 1.0
    points = [*values, values[-1]] if len(values) == 1 else list(values)
    step = _WIDTH / (len(points) - 1)
    line = " ".join(f"{place * step:.1f},{_HEIGHT * (1 - each / highest):.1f}" for place, each in enumerate(points))
    return (
        f"<figure style='margin:0'><b>{escape(title)}</b> {escape(unit(values[-1]))}<br>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 4}" viewBox="0 -2 {_WIDTH} {_HEIGHT + 4}" role="img" '
        f'aria-label="{escape(title)}"><polyline points="{line}" fill="none" stroke="#2f6fb7" stroke-width="2"/></svg>'
        f"<figcaption>0 to {escape(unit(highest))}, last {len(values)} epochs</figcaption></figure>"
    )


def show(html: str, text: str) -> None:
    """Display HTML in a notebook, and print the text elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        display(HTML(html))
    else:
        print(text)


# -- HTML --------------------------------------------------------------------------------------------------------------


def _page(title: str, *parts: str) -> str:
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def _table(facts: Facts) -> str:
    rows = "".join(
        f"<tr><th {_LEFT}>{escape(str(name))}</th><td {_LEFT}>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _image(drawing: str) -> str:
    # As an image, the drawing cannot change the style of the notebook.
    data = b64encode(drawing.encode(errors="replace")).decode()
    return f'<p><img alt="Plan" style="background:#fff;max-width:none" src="data:image/svg+xml;base64,{data}"></p>'
