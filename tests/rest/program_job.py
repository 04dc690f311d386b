"""A job that runs in the process of its service, as with `penstock run --web`."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from fake_gateway import JOB, snapshot

from penstock.driver.process_facts import Environment, python_environment


class AJob:
    """A job that is snapshots, and the client that a program has of it."""

    def __init__(self) -> None:
        self.id, self.name = JOB, "counts"
        self.now = snapshot(JOB, name="counts")
        self.snapshots = 0
        self.cancelled = threading.Event()
        self.savepoint: Future[str] = Future()
        self.parallelism: Any = None

    def snapshot(self) -> Any:
        self.snapshots += 1
        return self.now

    def environment(self) -> Environment:
        return python_environment()

    def trigger_checkpoint(self) -> Future[int]:
        done: Future[int] = Future()
        done.set_result(8)
        return done

    def cancel(self) -> Future[None]:
        self.now = snapshot(JOB, "CANCELED", name="counts")
        self.cancelled.set()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def stop_with_savepoint(self, drain: bool, directory: str | None) -> Any:
        return self.savepoint

    def rescale(self, parallelism: Any) -> None:
        self.parallelism = parallelism
