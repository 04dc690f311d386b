"""The Grafana board of the docs: every query uses metrics and labels that a job exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.driver.job_snapshot import (
    ExecutorSnapshot,
    JobSnapshot,
    OperatorFacts,
    SubtaskSnapshot,
    VertexSnapshot,
)
from penstock.driver.prometheus import exposition
from penstock.runtime.metrics import BACKLOG, LATE_RECORDS

parser = pytest.importorskip("prometheus_client.parser")

BOARD = json.loads((Path(__file__).parents[2] / "docs" / "run" / "grafana-board.json").read_text())
JOB = JobSnapshot(
    id="1" * 32,
    name="words",
    state="RUNNING",
    executors=[ExecutorSnapshot(id="0")],
    vertices=[
        VertexSnapshot(
            id="2" * 32,
            uid="count",
            name="count",
            operators=[OperatorFacts(uid="count", name="count", kind="window")],
            subtasks=[SubtaskSnapshot()],
            metrics={f"count.{LATE_RECORDS}": [3]},
            driver_metrics={BACKLOG: 5},
        )
    ],
)


def exported() -> dict[str, set[str]]:
    """Return the labels of each exported metric."""
    families = parser.text_string_to_metric_families(exposition([JOB], "here"))
    return {family.name: set(family.samples[0].labels) for family in families}


def queries(panels: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


def test_every_query_uses_metrics_and_labels_that_exist():
    known = exported()
    found = list(queries(BOARD["panels"]))
    for title, expression, legend in found:
        names = re.findall(r"flink_\w+", expression)
        assert names, title
        assert set(names) <= known.keys(), title
        labels = set(re.findall(r"(\w+)=~?", expression)) | set(re.findall(r"\{\{(\w+)\}\}", legend))
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            labels |= set(grouped.replace(" ", "").split(","))
        assert all(labels <= known[name] for name in names), title
    assert len(found) > 15


def test_a_metric_that_does_not_exist_would_be_noticed():
    assert "flink_jobmanager_job_nothing" not in exported()
    assert "flink_jobmanager_job_operator_backlog" in exported()


def test_the_variables_of_the_queries_are_declared_and_read_existing_metrics():
    declared = {each["name"] for each in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"])))
    assert used <= declared
    for each in BOARD["templating"]["list"]:
        for metric, label in re.findall(r"label_values\((\w+), (\w+)\)", json.dumps(each)):
            assert label in exported()[metric]


def test_panels_have_units_and_do_not_overlap():
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells
        cells |= covered
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
