"""Reads while a job crashes, restarts, rescales and loses its servers: each checkpoint shows what it committed."""

import random

import pytest
from query_jobs import descriptors, every_kind
from test_reads import NAMES, Reader, apply, committed

from penstock.checkpoint.manifest import manifest_name
from penstock.driver.epoch_settings import Settings
from penstock.state.storage import AlreadyPublished

POINTS = ["driver.triggered", "level1.snapshot", "driver.collected", "driver.published", "driver.committed"]
KEYS = [f"k{i}" for i in range(15)]
SETTINGS = Settings(base_bytes=1, asynchronous=False)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def check(reader, oracle, rng):
    """Compare random reads of all readable checkpoints with what the job committed."""
    for number in range(reader.follower.oldest, reader.follower.newest + 1):
        name, key = rng.choice([name for name in NAMES if name != "the aggregating"]), rng.choice(KEYS)
        assert reader.find(name, key, number) == oracle[number][name].get(key)
    newest = reader.follower.newest
    assert {row["key"]: row["value"] for row in reader.scan("the value", newest)} == oracle[newest]["the value"]
    mean = descriptors()["the aggregating"]
    for key, value in oracle[newest]["the aggregating"].items():
        assert reader.get("the aggregating", key, newest, descriptor=mean) == value


@pytest.mark.parametrize("seed", [1, 2])
def test_every_readable_checkpoint_equals_the_oracle(seed):
    rng = random.Random(seed)
    clock = Clock()
    first = job = every_kind(settings=SETTINGS)
    followed, slow = (Reader(job, retained=6, clock=clock) for _ in range(2))
    oracle, stale = {}, {}
    subscribed = {name: ({}, None) for name in ("the value", "the map", "the list")}
    for _ in range(120):
        clock.now += 2
        action = rng.randrange(12)
        job.push(*((rng.choice(KEYS), rng.choice([-1, 0, *range(1, 30)])) for _ in range(12)))
        if action == 0:
            job.crash_at(rng.choice(POINTS))
        elif action == 1:
            job.rescale(rng.choice([1, 2, 3, 7, 16]))
            oracle[job.checkpoint] = committed(job)
        elif action == 2:
            job = every_kind(settings=SETTINGS, storage=first.storage, parallelism=rng.choice([1, 4]))
        job.epoch()
        if not job.checkpoint:
            continue
        oracle[job.checkpoint] = committed(job)
        stale.setdefault(job.checkpoint, first.storage.read(manifest_name(job.checkpoint)))
        zombie = rng.choice([*stale]) if rng.random() < 0.3 else None
        if zombie is not None:
            # A driver that was stopped publishes again what it once published, and later takes it back.
            try:
                first.storage.publish(manifest_name(zombie), stale[zombie])
            except AlreadyPublished:
                zombie = None
        before = followed.follower.newest
        followed.follower.poll()
        assert followed.follower.newest >= before
        if rng.random() < 0.05:
            slow.follower.poll()
        if zombie is not None:
            first.storage.delete(manifest_name(zombie))
        check(followed, oracle, rng)
        if slow.follower.newest:
            check(slow, oracle, rng)
        for name, (state, since) in subscribed.items():
            while since != followed.follower.newest:
                changes = followed.reads.changes(name, since)
                if changes.reset:
                    state.clear()
                for rows in changes.changes:
                    apply(followed.values(name), state, rows)
                since = changes.checkpoint
                assert {key: value for (key, _), value in state.items()} == oracle[since][name]
            subscribed[name] = state, since
    assert followed.follower.newest > 90
    first.close()
