"""The plan of a job as text, as a drawing, and as JSON. Each can be downloaded."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from penstock.driver.job_snapshot import JobSnapshot
from penstock.graph.picture import picture
from penstock.web.markup import Markup, join, tag
from penstock.web.observation import Watch


def plan(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the chains as text, and the operators as a drawing and as JSON."""
    lines = "\n".join(_chains(job))
    written, drawing = _read(job.plan)
    return join(
        tag("h2", "Chains"),
        _download("Download as text", "plan.txt", "text/plain", lines),
        tag("pre", lines, tabindex="0"),
        tag("h2", "Operators"),
        _picture(job, drawing) if drawing else tag("p", "The plan cannot be drawn.", class_="quiet"),
        tag("h2", "JSON"),
        _download("Download as JSON", "plan.json", "application/json", written),
        tag("pre", written, tabindex="0", class_="tall"),
    )


def _chains(job: JobSnapshot) -> Iterator[str]:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    for vertex in job.vertices:
        yield f"{vertex.name}  (parallelism {vertex.parallelism})"
        for operator in vertex.operators:
            yield f"    {operator.kind}: {operator.name} [uid {operator.uid}]"
        for each in vertex.inputs:
            yield f"    reads {names.get(each.vertex, each.vertex)} by {each.strategy}"


@lru_cache(maxsize=8)
def _read(text: str) -> tuple[str, str]:
    """Return the plan with indentation, and its drawing, for a plan as text. Pages refresh themselves often."""
    try:
        known = json.loads(text)
    except ValueError:
        return text, ""
    return json.dumps(known, indent=2, ensure_ascii=False), _drawn(known)


def _drawn(known: Any) -> str:
    """Return an SVG document, or an empty text if a process of another version wrote the plan."""
    if not isinstance(known, dict) or not known.get("nodes"):
        return ""
    try:
        return picture(known)
    except (KeyError, TypeError, AttributeError, IndexError):
        return ""


def _picture(job: JobSnapshot, drawing: str) -> Markup:
    # As an image, the document can neither run scripts nor change the style of the page.
    image = tag("img", src=_data("image/svg+xml", drawing), alt=f"Plan of {job.name}")
    return join(
        _download("Download as SVG", "plan.svg", "image/svg+xml", drawing),
        tag("div", image, class_="scrolls drawing", tabindex="0", role="region", aria_label="Plan"),
    )


def _download(text: str, name: str, media_type: str, contents: str) -> Markup:
    return tag("p", tag("a", text, href=_data(media_type, contents), download=name))


def _data(media_type: str, contents: str) -> str:
    return f"data:{media_type};base64,{b64encode(contents.encode(errors='replace')).decode()}"
