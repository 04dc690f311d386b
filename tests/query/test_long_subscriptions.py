"""Subscriptions over hundreds of checkpoints, while the job crashes and rescales and servers die."""

import random

import pytest
from query_jobs import every_kind
from test_reads import committed
from test_through_crashes import POINTS, SETTINGS

from penstock.checkpoint.lineages import Lineages
from penstock.query.errors import QueryError

EPOCHS = 250
KEYS = [f"k{i}" for i in range(15)]
STATES = ["the value", "the list", "the map", "the reducing"]


class Subscription:
    """Applies changes to a dict, and continues after an error."""

    def __init__(self, client, name):
        self.client, self.name = client, name
        self.state = {}
        self.since, self.lineage = None, ""
        self.changes = iter(())
        self.resets = []

    def next(self):
        """Apply the next changes, and return their checkpoint."""
        while True:
            try:
                changes = next(self.changes)
                break
            except (StopIteration, QueryError):
                self.changes = self.client.subscribe("id0", self.name, since=self.since, lineage=self.lineage)
        if changes.reset:
            self.state.clear()
            self.resets.append(changes.checkpoint)
        else:
            assert (changes.lineage, changes.checkpoint) == (self.lineage, self.since + 1)
        for change in changes.changes:
            if change.map_key is None:
                self.state.pop(change.key, None)
                if change.value is not None:
                    self.state[change.key] = change.value
            else:
                entries = self.state.setdefault(change.key, {})
                entries.pop(change.map_key, None)
                if change.value is not None:
                    entries[change.map_key] = change.value
                if not entries:
                    del self.state[change.key]
        self.since, self.lineage = changes.checkpoint, changes.lineage
        return self.since


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_give_the_state_of_each_checkpoint_through_crashes_rescales_and_dead_servers(
    make_job, serve, connect, seed, tmp_path
):
    rng = random.Random(seed)
    job = make_job("job", SETTINGS)
    job.run(("k1", 1))
    server = serve(job)
    client = connect()
    subscriptions = [Subscription(client, name) for name in STATES]
    oracle = {}
    restored = 0
    for epoch in range(1, EPOCHS):
        job.harness.push(*((rng.choice(KEYS), rng.choice([-1, 0, *range(1, 30)])) for _ in range(12)))
        action = rng.randrange(12)
        if action == 0:
            job.harness.crash_at(rng.choice(POINTS))
        elif action == 1:
            job.harness.rescale(rng.choice([1, 2, 3, 7, 16]))
            oracle[job.harness.checkpoint] = committed(job.harness)
        job.harness.epoch()
        oracle[job.harness.checkpoint] = committed(job.harness)
        if epoch in (80, 160):
            server.close()
            server = serve(job)
        if epoch == 200:
            where = job.harness.savepoint(str(tmp_path / "savepoints"))
            for subscription in subscriptions:
                while subscription.since != job.harness.checkpoint:
                    assert subscription.next() in oracle
            lineages = Lineages(job.root)
            lineages.end(lineages.current(), last=job.harness.checkpoint, retain=True)
            job.harness = every_kind(
                storage=lineages.storage_of(lineages.current()), settings=SETTINGS, from_savepoint=where
            )
            restored = job.harness.checkpoint
        for subscription in subscriptions:
            # One of them often falls behind.
            if subscription.name == "the value" and rng.random() < 0.7 and epoch < EPOCHS - 1:
                continue
            while subscription.since != job.harness.checkpoint:
                seen = subscription.next()
                assert subscription.state == oracle[seen][subscription.name]
    for subscription in subscriptions:
        assert subscription.since == job.harness.checkpoint
        # The first one, those of a new server, that of a new lineage, and that of the one that fell too far behind.
        assert len(subscription.resets) <= 4 + (subscription.name == "the value")
        assert any(number >= restored for number in subscription.resets)
    assert len(oracle) > 200
