"""The ledger holds every count that the demo's job emits, and its audit finds losses and duplicates."""

import pytest

from penstock.checkpoint.wal import WriteAheadLog
from penstock.cli.demo_job import UrlCount
from penstock.cli.ledger import LedgerSink, audit, read_ledger
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Commit, CommitContext
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness

EXPECTED = {"/a": 10, "/b": 3}
RIGHT = {"/a": [(1, 4), (5, 10)], "/b": [(1, 3)]}


def figures(found):
    return found.counted, found.lost.total(), found.doubled.total()


def test_runs_that_cover_all_counts_are_correct_in_any_order():
    assert figures(audit(EXPECTED, RIGHT)) == (13, 0, 0)
    assert figures(audit(EXPECTED, {"/a": [(5, 10), (1, 4)], "/b": [(3, 3), (1, 2)]})) == (13, 0, 0)


@pytest.mark.parametrize(
    ("planted", "counted", "lost", "doubled"),
    [
        pytest.param({"/a": [(1, 4), (6, 10)]}, 9, 1, 0, id="lost record in the middle"),
        pytest.param({"/a": [(1, 9)]}, 9, 1, 0, id="lost last record"),
        pytest.param({"/a": [(1, 4), (4, 10)]}, 11, 0, 1, id="duplicate record"),
        pytest.param({"/a": [(1, 4), (5, 10), (5, 10)]}, 16, 0, 6, id="duplicate epoch"),
        pytest.param({"/a": [(1, 12)]}, 12, 0, 2, id="two records counted twice"),
        pytest.param({"/a": [(1, 6), (5, 8)]}, 10, 2, 2, id="state rolled back by two"),
        pytest.param({}, 0, 10, 0, id="lost URL"),
        pytest.param({"/a": [(1, 10)], "/c": [(1, 2)]}, 12, 0, 2, id="URL that is not in the log"),
    ],
)
def test_the_audit_finds_planted_losses_and_duplicates(planted, counted, lost, doubled):
    assert figures(audit({"/a": 10}, planted)) == (counted, lost, doubled)


def test_the_audit_reports_the_url():
    found = audit(EXPECTED, {"/a": [(1, 10), (10, 10)], "/b": [(1, 1)]})
    assert found.lost == {"/b": 2}
    assert found.doubled == {"/a": 1}
    assert found.final == {"/a": 10, "/b": 1}


def test_committing_a_page_again_is_idempotent(tmp_path):
    sink = LedgerSink(tmp_path)
    writer = sink.create_writer(None)
    pages = []
    for _ in range(2):
        writer.write(("/a", 1))
        writer.write(("/a", 2))
        pages.append(writer.prepare_commit())
    context = CommitContext(uid="ledger", wal=WriteAheadLog(DriverStorage()))
    sink.commit([Commit(lineage="lineage", epoch=1, subtask=0, payload=pages[0])], context)
    sink.commit([Commit(lineage="lineage", epoch=1, subtask=0, payload=pages[0], again=True)], context)
    assert read_ledger(tmp_path) == {"/a": [(1, 2)]}
    sink.commit([Commit(lineage="lineage", epoch=2, subtask=0, payload=pages[1])], context)
    assert read_ledger(tmp_path) == {"/a": [(1, 2), (1, 2)]}


def test_an_epoch_without_records_writes_no_page(tmp_path):
    assert LedgerSink(tmp_path).create_writer(None).prepare_commit() is None


@pytest.mark.parametrize("point", ["level1.processed", "driver.collected", "driver.published", "driver.committed"])
def test_the_ledger_is_correct_after_a_crash(tmp_path, point):
    """Runs the demo's own job and sink in process."""
    for folder in ("ledger", "workers"):
        (tmp_path / folder).mkdir()
    urls = ["/a", "/b", "/a", "/a", "/c", "/b"] * 10
    env = StreamExecutionEnvironment.get_execution_environment()
    counts = env.from_collection(urls).key_by(lambda url: url).process(UrlCount(tmp_path / "workers")).uid("count")
    counts.sink_to(LedgerSink(tmp_path / "ledger")).uid("ledger")
    with JobHarness(env, parallelism=2, backend="filesystem") as job:
        job.epoch(10)
        job.crash_at(point)
        job.epoch(10)
        job.run(10)
    found = audit({"/a": 30, "/b": 20, "/c": 10}, read_ledger(tmp_path / "ledger"))
    assert figures(found) == (60, 0, 0)
