"""Import path of the metric classes in PyFlink programs."""

from penstock.absent import explain_absent
from penstock.runtime.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

explain_absent(__name__)
