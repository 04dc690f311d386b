"""Reads of a job that continues in another lineage, whose checkpoints have numbers that were used before."""

import pytest
from query_jobs import every_kind

from penstock.checkpoint.lineages import Lineages
from penstock.query.errors import CheckpointGone


@pytest.fixture
def restore(job, tmp_path):
    """`restore()` ends the job with one more checkpoint, and starts it again from a savepoint before that."""

    def restored():
        where = job.harness.savepoint(str(tmp_path / "savepoints"))
        job.run(("ann", 100))
        lineages = Lineages(job.root)
        lineages.end(lineages.current(), last=job.harness.checkpoint, retain=True)
        lineage = lineages.current()
        storage = lineages.storage_of(lineage)
        job.harness = every_kind(storage=storage, settings=job.settings, from_savepoint=where)
        return lineage

    return restored


def await_lineage(client, lineage):
    while client.describe("id0").lineage != lineage:
        pass


def test_pinned_reads_fail_rather_than_show_the_same_number_of_another_lineage(job, serve, client, restore):
    job.run(("ann", 1))
    serve(job)
    lineage = restore()
    with client.pinned("id0", 2) as pinned:
        assert pinned.get("the value", "ann") == 100
        job.run(("ann", 3))
        await_lineage(client, lineage)
        for read in (
            lambda: pinned.get("the value", "ann"),
            lambda: pinned.get_many("the value", ["ann"]),
            lambda: pinned.entries("the map", "ann"),
            lambda: pinned.scan("the value").read_all(),
        ):
            with pytest.raises(CheckpointGone, match="Checkpoint 2 belongs to a former run of the job"):
                read()
    assert client.get("id0", "the value", "ann", checkpoint=2) == 3


def test_a_subscription_that_is_continued_in_another_lineage_starts_with_a_reset(job, serve, client, restore):
    job.run(("ann", 1))
    serve(job)
    lineage = restore()
    first = next(client.subscribe("id0", "the list"))
    assert (first.checkpoint, first.reset, first.changes[0].value) == (2, True, [1, 100])
    job.run(("ann", 3))
    await_lineage(client, lineage)
    job.run(("ann", 4))
    client.get("id0", "the list", "ann", at_least=3)
    after = next(client.subscribe("id0", "the list", since=2, lineage=first.lineage))
    assert (after.checkpoint, after.reset, after.changes[0].value) == (3, True, [1, 3, 4])
    assert after.lineage == lineage
    again = next(client.subscribe("id0", "the list", since=2, lineage=after.lineage))
    assert (again.checkpoint, again.reset) == (3, False)
    assert [(change.key, change.value) for change in again.changes] == [("ann", [1, 3, 4])]
