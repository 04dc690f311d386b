"""The endpoints for Prometheus of a real service: one of the Dispatcher for all jobs, and one of each job."""

import re
import urllib.request
from pathlib import Path

import pytest
from service_host import COUNTS, SMALL, ServiceHost

parser = pytest.importorskip("prometheus_client.parser")

pytestmark = [pytest.mark.spark, pytest.mark.long]


def running_records(address: str) -> dict[str, float]:
    """Return the records that the tasks of each job have received, read at an endpoint."""
    with urllib.request.urlopen(address, timeout=20) as answer:
        families = parser.text_string_to_metric_families(answer.read().decode())
    counts: dict[str, float] = {}
    for family in families:
        if family.name == "flink_taskmanager_job_task_numRecordsIn":
            for sample in family.samples:
                counts[sample.labels["job_id"]] = counts.get(sample.labels["job_id"], 0) + sample.value
    return counts


def test_the_dispatcher_exports_all_jobs_and_each_job_itself(tmp_path: Path) -> None:
    host = ServiceHost(tmp_path, {**SMALL, "spark.master": "local[1]", "metrics.reporter.prom.port": "0"})
    (tmp_path / "counts.py").write_text(COUNTS)
    try:
        host.said("cluster", "start")
        job = host.said("run", "-d", "counts.py", "north")
        host.await_running(job)
        announced = re.compile(r"Metrics of (.*) for Prometheus: (http://127\.0\.0\.1:\d+/metrics)")
        of_all = dict(announced.findall((host.cluster / "dispatcher.log").read_text()))["all jobs"]
        of_job = dict(announced.findall(host.said("logs", job)))["job 'north'"]
        assert of_all != of_job
        for address in (of_all, of_job):
            host.until(lambda address=address: running_records(address).get(job, 0) > 0)
            assert set(running_records(address)) == {job}
    finally:
        host.close()
