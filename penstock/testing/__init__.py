"""Run operators and whole programs in process, without a JVM: push records, cut epochs, crash, look at state."""

from penstock.testing.harness import JobHarness, keyed_harness

__all__ = ["JobHarness", "keyed_harness"]
