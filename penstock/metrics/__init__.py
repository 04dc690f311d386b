"""Metrics that functions register with ``runtime_context.get_metrics_group()``, and the metrics read from a job."""

from penstock.absent import explain_absent
from penstock.driver.epoch_metrics import DistributionValue
from penstock.driver.metrics import JobMetrics, MeterValue
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
