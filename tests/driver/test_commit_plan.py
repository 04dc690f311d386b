"""When each committable of an epoch is committed."""

import pytest
from epoch_jobs import CommitLog

from penstock.checkpoint.manifest import Committable
from penstock.checkpoint.wal import WriteAheadLog
from penstock.driver.committing import Committer
from penstock.driver.report_totals import totals_of
from penstock.runtime.report import OperatorReport, Report
from penstock.state.driver_storage import DriverStorage


class OfKind(CommitLog):
    def __init__(self, durable, commit_before_checkpoint):
        super().__init__()
        self.durable, self.commit_before_checkpoint = durable, commit_before_checkpoint


SINKS = {
    "durable": OfKind(durable=True, commit_before_checkpoint=False),
    "volatile": OfKind(durable=False, commit_before_checkpoint=False),
    "durable, before checkpoint": OfKind(durable=True, commit_before_checkpoint=True),
    "volatile, before checkpoint": OfKind(durable=False, commit_before_checkpoint=True),
}


def plan(at_least_once):
    committer = Committer(SINKS, "lineage", WriteAheadLog(DriverStorage()), at_least_once)
    return committer.plan(totals_of([report(1), report(0)]).committables())


def report(subtask):
    operators = [OperatorReport(uid=uid, states={}, deltas=[], committable=uid.encode()) for uid in SINKS]
    silent = OperatorReport(uid="count", states={}, deltas=[])
    return Report(chain=1, subtask=subtask, epoch=1, records_in=0, sent=[], received=[], operators=[silent, *operators])


def committables(*uids):
    return [Committable(uid=uid, subtask=subtask, payload=uid.encode()) for subtask in (0, 1) for uid in uids]


def test_nothing_is_committed_before_the_checkpoint_in_exactly_once_mode():
    planned = plan(at_least_once=False)
    assert planned.before_checkpoint == []
    assert planned.in_manifest == committables("durable", "durable, before checkpoint")
    assert planned.unrecorded == committables("volatile", "volatile, before checkpoint")


def test_capable_sinks_commit_before_the_checkpoint_in_at_least_once_mode():
    planned = plan(at_least_once=True)
    assert planned.before_checkpoint == committables("durable, before checkpoint", "volatile, before checkpoint")
    assert planned.in_manifest == committables("durable")
    assert planned.unrecorded == committables("volatile")


@pytest.mark.parametrize("at_least_once", [False, True])
def test_each_committable_is_committed_once(at_least_once):
    planned = plan(at_least_once)
    found = [*planned.before_checkpoint, *planned.in_manifest, *planned.unrecorded]
    assert sorted(found, key=repr) == sorted(committables(*SINKS), key=repr)
