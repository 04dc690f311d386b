"""The graph of a job as SVG: a box per chain, coloured by its busy share, and edges with their rates."""

from __future__ import annotations

from penstock.driver.job_snapshot import JobSnapshot, VertexInput, VertexSnapshot
from penstock.runtime.metrics import BYTES_OUT, EDGE_GROUP, RECORDS_OUT
from penstock.web.graph_layout import MOST_LINES, WIDTH, Box, Node, layout
from penstock.web.markup import Child, Markup, job_path, join, table, tag
from penstock.web.quantities import NONE, byte_rate, duration, number, rate, share, size, utc

_MARGIN = 12
_LABEL, _STRAIGHT = 16, 130
"""Height and width of the label of an edge."""
_LONGEST = 30
"""Characters of a line in a box."""


def graph(job: JobSnapshot) -> Markup:
    """Return the drawing. Each box is a link to its chain."""
    if not job.vertices:
        return tag("p", "The job has no graph yet.", class_="quiet")
    placed = layout(
        [Node(vertex.id, [each.vertex for each in vertex.inputs], len(vertex.operators)) for vertex in job.vertices]
    )
    by_id = {vertex.id: vertex for vertex in job.vertices}
    edges = []
    for vertex in job.vertices:
        box = placed.boxes[vertex.id]
        # From top to bottom: edges of one chain then do not cross.
        inputs = sorted(
            (each for each in vertex.inputs if each.vertex in by_id), key=lambda each: placed.boxes[each.vertex].y
        )
        # Labels need space.
        labelled = box.height >= _LABEL * (len(inputs) + 1)
        for place, each in enumerate(inputs):
            start = placed.boxes[each.vertex]
            ends = (start.x + WIDTH, start.middle, box.x, box.entry(place, len(inputs)))
            edges.append(_edge(by_id[each.vertex], vertex, each, ends, labelled))
    boxes = [_box(job, vertex, placed.boxes[vertex.id]) for vertex in job.vertices]
    drawing = tag(
        "svg",
        *edges,
        *boxes,
        viewBox=f"{-_MARGIN} {-_MARGIN} {placed.width + 2 * _MARGIN} {placed.height + 2 * _MARGIN}",
        width=placed.width + 2 * _MARGIN,
        height=placed.height + 2 * _MARGIN,
        role="group",
        aria_label="Graph of the job",
        class_="graph",
    )
    return join(tag("div", drawing, class_="scrolls", tabindex="0", role="region", aria_label="Graph"), _legend())


def _legend() -> Markup:
    steps = [("idle", "below 20 % busy"), ("low", "20 to 50 %"), ("high", "50 to 80 %"), ("full", "above 80 %")]
    items = [tag("span", tag("i", class_=f"swatch {name}"), text) for name, text in steps]
    return tag("p", *items, tag("span", "Sources: share of time held back (back-pressure)"), class_="legend")


def load(vertex: VertexSnapshot) -> float:
    """Return the share that colours a box: back-pressure of a source, otherwise the busiest subtask."""
    if not vertex.inputs:
        return max((each.backpressured for each in vertex.subtasks), default=0.0)
    return max((each.busy for each in vertex.subtasks), default=0.0)


def _level(value: float) -> str:
    return "idle" if value < 0.2 else "low" if value < 0.5 else "high" if value < 0.8 else "full"


def _box(job: JobSnapshot, vertex: VertexSnapshot, box: Box) -> Markup:
    value = load(vertex)
    what = "back-pressured" if not vertex.inputs else "busy"
    lines = [operator.name or operator.uid for operator in vertex.operators]
    shown = lines[:MOST_LINES] + ([f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else [])
    texts = [
        tag("text", _cut(vertex.name), x=box.x + 12, y=box.y + 20, class_="name"),
        tag(
            "text",
            f"parallelism {vertex.parallelism} · {share(value)} {what}",
            x=box.x + 12,
            y=box.y + 37,
            class_="facts",
        ),
        *(
            tag("text", _cut(f"· {line}"), x=box.x + 12, y=box.y + 54 + 17 * place, class_="operator")
            for place, line in enumerate(shown)
        ),
    ]
    return tag(
        "a",
        tag("title", f"{vertex.name}\n{share(value)} {what}\n" + "\n".join(lines)),
        tag("rect", x=box.x, y=box.y, width=WIDTH, height=box.height, rx=8),
        *texts,
        href=job_path(job.id, "graph") + f"?vertex={vertex.id}",
        id=f"vertex-{vertex.id}",
        class_=f"vertex {_level(value)}",
        aria_label=f"{vertex.name}, {share(value)} {what}",
    )


def _edge(
    source: VertexSnapshot, target: VertexSnapshot, edge: VertexInput, ends: tuple[int, int, int, int], labelled: bool
) -> Markup:
    x1, y1, x2, y2 = ends
    # Straight below its label, and a curve before.
    flat = max(x1, x2 - _STRAIGHT)
    middle = (x1 + flat) // 2
    records = sum(each.records_out_rate for each in source.subtasks) * _share_of_edge(source, target, RECORDS_OUT)
    data = sum(each.bytes_out_rate for each in source.subtasks) * _share_of_edge(source, target, BYTES_OUT)
    # Next to the target, where the edges of one source have separated.
    label = tag("text", f"{number(records)} rec/s · {byte_rate(data)}", x=x2 - 12, y=y2 - 5, text_anchor="end")
    return tag(
        "g",
        tag("title", f"{source.name} to {target.name}: {edge.strategy}, {rate(records)}, {byte_rate(data)}"),
        tag("path", d=f"M{x1},{y1} C{middle},{y1} {middle},{y2} {flat},{y2} L{x2},{y2}"),
        tag("path", d=f"M{x2 - 7},{y2 - 4} L{x2},{y2} L{x2 - 7},{y2 + 4} Z", class_="head"),
        label if labelled else None,
        class_="edge",
    )


def _share_of_edge(source: VertexSnapshot, target: VertexSnapshot, name: str) -> float:
    """Return which share of what a chain has sent so far went to this target. Its rates are those of all targets."""
    sent = {
        metric: sum(value or 0 for value in values)
        for metric, values in source.metrics.items()
        if metric.endswith(f".{name}") and f".{EDGE_GROUP}." in metric
    }
    whole = sum(sent.values())
    own = sum(count for metric, count in sent.items() if metric.endswith(f".{EDGE_GROUP}.{target.uid}.{name}"))
    return own / whole if whole else 1.0


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def subtasks(vertex: VertexSnapshot) -> Markup:
    """Return the subtasks of a chain, and its metrics."""
    head = ["Subtask", "State", "Host", "Records in", "Records out", "In", "Out", "Busy", "Back-pressured", "Watermark"]
    rows: list[list[Child]] = [
        [
            place,
            each.state.lower(),
            each.host or NONE,
            f"{each.records_in:,}",
            f"{each.records_out:,}",
            f"{rate(each.records_in_rate)}, {byte_rate(each.bytes_in_rate)}",
            f"{rate(each.records_out_rate)}, {byte_rate(each.bytes_out_rate)}",
            f"{share(each.busy)}, {duration(each.busy_ms)} in total",
            share(each.backpressured),
            NONE if each.watermark is None else utc(each.watermark),
        ]
        for place, each in enumerate(vertex.subtasks)
    ]
    whole: list[list[Child]] = [
        [name, *(NONE if value is None else f"{value:,}" for value in values)]
        for name, values in sorted(vertex.metrics.items())
    ]
    driver = [[name, f"{value:,}"] for name, value in sorted(vertex.driver_metrics.items())]
    columns = max((len(row) for row in whole), default=1)
    return join(
        tag("h2", vertex.name),
        tag("p", f"Received {size(vertex.totals.bytes_in)}, sent {size(vertex.totals.bytes_out)}.", class_="quiet"),
        table(head, rows, label="Subtasks", numeric=frozenset({3, 4, 5, 6, 7, 8})),
        tag("h3", "Metrics by subtask") if whole else None,
        table(
            ["Metric", *range(columns - 1)],
            whole,
            label="Metrics",
            numeric=frozenset(range(1, columns)),
        )
        if whole
        else None,
        tag("h3", "Measured by the driver") if driver else None,
        table(["Metric", "Value"], driver, label="Driver metrics", numeric=frozenset({1})) if driver else None,
    )
