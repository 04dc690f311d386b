"""Run operators and complete programs in process, without a JVM: push records, run epochs, crash, inspect state."""

from penstock.testing.harness import JobHarness, keyed_harness
from penstock.testing.sinks import SinkHarness
from penstock.testing.watching import WatermarkMovedBackwards

__all__ = ["JobHarness", "SinkHarness", "WatermarkMovedBackwards", "keyed_harness"]
