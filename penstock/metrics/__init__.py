"""Metrics: what a function registers with `runtime_context.get_metrics_group()`, and what a job's metrics read as."""

from penstock.absent import explain_absent
from penstock.driver.metrics import DistributionValue, JobMetrics, MeterValue
from penstock.runtime.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = [
    "Counter",
    "Distribution",
    "DistributionValue",
    "JobMetrics",
    "Meter",
    "MeterValue",
    "Metric",
    "MetricGroup",
]

explain_absent(__name__)
