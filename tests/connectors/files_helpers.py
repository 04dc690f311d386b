"""Helpers for the FileSink tests: a reader, a writer without a job, and a clock that tests set."""

import os

from penstock.checkpoint.wal import WriteAheadLog
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.driver.committing import Commit, CommitContext
from penstock.runtime.context import RuntimeContext
from penstock.runtime.metrics import MetricRegistry
from penstock.runtime.operators import EpochInfo
from penstock.state.driver_storage import DriverStorage

BASE = BucketAssigner.base_path_bucket_assigner()
LINEAGE = "4f2c9a"


def files(base, hidden=False):
    """Return {path below `base`: bytes} of all files that directory readers see or, if `hidden`, skip."""
    found = {}
    for directory, _, names in os.walk(base):
        for name in names:
            path = os.path.join(directory, name)
            below = os.path.relpath(path, base)
            if any(step.startswith((".", "_")) for step in below.split(os.sep)) == hidden:
                with open(path, "rb") as file:
                    found[below] = file.read()
    return found


def lines(base):
    return sorted(line for data in files(base).values() for line in data.decode().splitlines())


def context(subtask=0, uid="out"):
    return RuntimeContext(
        task_name="files",
        uid=uid,
        subtask=subtask,
        parallelism=4,
        max_parallelism=128,
        overlay=None,
        metrics=MetricRegistry("files", uid),
    )


def rows(base, encoder, *, policy=None, assigner=BASE, config=None):
    builder = FileSink.for_row_format(base, encoder).with_bucket_assigner(assigner)
    if policy is not None:
        builder.with_rolling_policy(policy)
    if config is not None:
        builder.with_output_file_config(config)
    return builder.build()


class Attempts:
    """Runs epochs of one sink without a job: attempts that write, and the driver, which selects one of them."""

    def __init__(self, sink, lineage=LINEAGE, uid="out"):
        self.uid = uid
        self.storage = DriverStorage()
        self.context = CommitContext(uid=uid, wal=WriteAheadLog(self.storage))
        self.sink = sink
        self.lineage = lineage
        self.epoch = 0
        self.now = 1_000_000
        self.states = [[]]

    def attempt(self, values, subtask=0, end=False):
        """Return (committable, state) of one subtask's attempt at the next epoch."""
        writer = self.sink.create_writer(context(subtask, self.uid))
        states = self.states[subtask] if subtask < len(self.states) else []
        writer.restore(states)
        writer.begin_epoch(EpochInfo(self.lineage, self.epoch + 1, self.now))
        for value in values:
            writer.write(value)
        if end:
            writer.end_input()
        report = writer.prepare_commit(), writer.snapshot_state()
        writer.close()
        return report

    def commits(self, reports, again=False):
        return [
            Commit(lineage=self.lineage, epoch=self.epoch, subtask=subtask, payload=payload, again=again)
            for subtask, (payload, _) in enumerate(reports)
            if payload is not None
        ]

    def publish(self, *reports):
        """Select these reports, one per subtask, for the epoch."""
        self.epoch += 1
        self.states = [states for _, states in reports]
        self.reports = reports

    def commit(self, again=False):
        commits = self.commits(self.reports, again)
        if commits:
            self.sink.commit(commits, self.context)

    def run(self, *values, end=False, after=0):
        """Run a complete epoch of one subtask, `after` milliseconds after the previous one."""
        self.now += after
        self.publish(self.attempt(values, end=end))
        self.commit()
        return self
