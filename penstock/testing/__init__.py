"""Run operators and whole programs in process, without a JVM: push records, cut epochs, crash, look at state."""

from penstock.testing.harness import JobHarness, keyed_harness
from penstock.testing.sinks import SinkHarness
from penstock.testing.watching import WatermarkMovedBackwards

__all__ = ["JobHarness", "SinkHarness", "WatermarkMovedBackwards", "keyed_harness"]
