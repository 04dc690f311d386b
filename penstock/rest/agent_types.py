"""What Dispatchers send to each other below /penstock/v1/agent/."""

from __future__ import annotations

import msgspec

from penstock.driver.control_messages import (
    Describe,
    DescribeEnvironment,
    DumpThreads,
    Follow,
    Operable,
    Poll,
    Trigger,
)

PREFIX = "/penstock/v1/agent"

ReadRequest = Describe | DescribeEnvironment | DumpThreads | Follow | Poll
"""Requests to a JobManager that change nothing."""
ActRequest = Operable | Trigger


class Killed(msgspec.Struct, kw_only=True, frozen=True):
    """The outcome of a kill."""

    gone: bool
    """Whether no process of the attempt is left."""
