"""Windows, sessions, timers and values that expire, read from several state servers that join, die and hand over."""

import random

import pytest
from query_jobs import divided
from test_several_servers import FAST, die, read_or_passing
from windowed_job import PER_KEY, WINDOWED, Expected, WindowedJob

from penstock.checkpoint.manifest import latest
from penstock.common.typeinfo import Types
from penstock.query.errors import UnknownKey
from penstock.query.protocol import CHECKPOINT
from penstock.tables.windows import window_of

EPOCHS = 60
KEYS = ["a", "b", "c", "d", "e", "f", "g"]
LISTS = ("window numbers", "session numbers", "finished sessions")
MAPS = ("window sizes", "waiting")


@pytest.fixture(params=[None, Types.STRING()], ids=["keys of no declared type", "keys of a declared type"])
def job(request, tmp_path):
    made = WindowedJob(tmp_path / "job", request.param)
    yield made
    made.harness.close()


class Feeding:
    """Gives records to the job and to the expected state, and runs epochs."""

    def __init__(self, job, rng):
        self.job, self.rng = job, rng
        self.expected = Expected()
        self.number = 0
        self.committed = {}
        """The expected states, by checkpoint."""

    def epoch(self, records=6, keys=KEYS, ahead=60):
        state, rng = self.expected, self.rng
        for _ in range(records):
            # Times are even, and sessions end at odd times: no record touches a session that is gone.
            time = state.watermark + 1 + 2 * rng.randrange(ahead // 2)
            self.number += 1
            record = rng.choice(keys), self.number, time + time % 2
            self.job.harness.push(record, timestamp=record[2])
            state.record(*record)
        watermark = state.watermark + rng.choice([0, 10, 20])
        self.job.harness.push_watermark(watermark)
        self.job.harness.set_clock(state.clock + rng.choice([0, 1000]))
        before = self.job.harness.checkpoint
        while self.job.harness.checkpoint == before:
            self.job.harness.epoch()
        state.watermark = watermark
        self.note()

    def rescale(self, parallelism):
        self.job.harness.rescale(parallelism)
        # This can run an epoch.
        self.note()

    def note(self):
        """Note what the last checkpoint holds."""
        if self.job.harness.checkpoint not in self.committed:
            # The restart after a crash takes time as well.
            self.expected.advance(latest(self.job.harness.storage)[0].timestamp)
            self.committed[self.job.harness.checkpoint] = self.expected.states()


def plain(name, value):
    return sorted(value) if name in LISTS else value


def scanned(table, name):
    """Return the rows of a scan by key and window, as the expected state has them."""
    found = {}
    for row in table.to_pylist():
        key = row["key"]
        if name in WINDOWED:
            key = key, (row["window_start"], row["window_end"])
        if name in MAPS:
            found.setdefault(key, {})[row["map_key"]] = row["value"]
        elif name in LISTS:
            found.setdefault(key, []).append(row["value"])
        else:
            found[key] = row["value"]
    return {key: plain(name, value) for key, value in found.items()}


def test_the_columns_of_windows_do_not_depend_on_which_server_has_rows(job, serve, client):
    feeding = Feeding(job, random.Random(1))
    feeding.epoch(records=4, keys=["a"])
    servers = [serve(job) for _ in range(4)]
    divided(servers)
    for name in (*WINDOWED, "waiting", "fading"):
        expected = feeding.committed[1][name]
        assert expected
        assert scanned(client.scan("id0", name).read_all(), name) == expected
        assert scanned(client.scan("id0", name, keys=["a"]).read_all(), name) == expected
        for blocks in ([block] for block in range(16)):
            table = client.scan("id0", name, blocks=blocks).read_all()
            assert scanned(table, name) in ({}, expected)


class Following:
    """Applies the changes of a state to a dict, and continues after an error."""

    def __init__(self, client, name):
        self.client, self.name = client, name
        self.state = {}
        self.since, self.lineage = None, ""
        self.changes = iter(())
        self.resets = 0

    def next(self):
        """Apply the next changes, and return their checkpoint."""
        changes = read_or_passing(lambda: next(self.changes, None))
        while changes is None:
            self.changes = self.client.subscribe("id0", self.name, since=self.since, lineage=self.lineage)
            changes = read_or_passing(lambda: next(self.changes, None))
        if changes.reset:
            self.state.clear()
            self.resets += 1
        else:
            assert changes.checkpoint == self.since + 1
        for change in changes.changes:
            assert bool(change.window) == (self.name in WINDOWED), change
            place = (change.key, window_of(change.window)[:2]) if change.window else change.key
            if change.map_key is None:
                self.state.pop(place, None)
                if change.value is not None:
                    self.state[place] = plain(self.name, change.value)
            else:
                entries = self.state.setdefault(place, {})
                entries.pop(change.map_key, None)
                if change.value is not None:
                    entries[change.map_key] = change.value
                if not entries:
                    del self.state[place]
        self.since, self.lineage = changes.checkpoint, changes.lineage
        return self.since


def check_reads(client, committed, rng):
    """Compare one read of each kind with what its checkpoint holds. A read can fail with an error that can pass."""
    name = rng.choice([*WINDOWED, *PER_KEY])
    key = rng.choice(KEYS)
    places = sorted({place for states in committed.values() for place in states.get(name, {})}, key=repr)
    window = None
    if name in WINDOWED and places:
        key, window = rng.choice(places)

    def place_of(key):
        return key if window is None else (key, window)

    def get():
        try:
            value, checkpoint = client.read("id0", name, key, window=window)
        except UnknownKey:
            return True
        return plain(name, value) == committed[checkpoint][name][place_of(key)]

    def scan():
        table = client.scan("id0", name).read_all()
        checkpoint = int(table.schema.metadata[CHECKPOINT])
        return scanned(table, name) == committed[checkpoint][name]

    def pinned():
        with client.pinned("id0") as reads:
            states = committed[reads.checkpoint]
            many = reads.get_many(name, KEYS, window=window)
            assert {place_of(each): plain(name, value) for each, value in many.items()} == {
                place: value for place, value in states[name].items() if window is None or place[1] == window
            }
            try:
                found = plain(name, reads.get(name, key, window=window))
            except UnknownKey:
                found = None
            assert found == states[name].get(place_of(key))
            if name in MAPS and found is not None:
                first = reads.entries(name, key, window=window, limit=1)
                assert [*first.entries] == [min(found)]
            for other in (*WINDOWED, *PER_KEY):
                assert scanned(reads.scan(other).read_all(), other) == states[other]
        return True

    assert read_or_passing(rng.choice([get, get, get, scan, pinned])) is not False


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 3])
def test_reads_of_windows_equal_their_checkpoint_while_servers_come_and_go_and_the_job_rescales(
    job, serve, connect, seed
):
    rng = random.Random(seed)
    client = connect(timeout=3)
    feeding = Feeding(job, rng)
    while not all(feeding.committed.get(job.harness.checkpoint, {}).get(name) for name in (*WINDOWED, *PER_KEY)):
        feeding.epoch()
    # The first one has the proxy.
    servers = [serve(job, **FAST) for _ in range(3)]
    divided(servers)
    subscriptions = [Following(client, name) for name in (*WINDOWED, "waiting", "fired")]
    for _ in range(EPOCHS):
        action = rng.randrange(10)
        if action == 0:
            feeding.rescale(rng.choice([1, 2, 3, 7, 16]))
        elif action == 1:
            job.harness.crash_at(rng.choice(["level1.snapshot", "driver.collected", "driver.published"]))
        elif action == 2 and len(servers) < 4:
            servers.append(serve(job, **FAST))
        elif action == 3 and len(servers) > 2:
            die(servers.pop())
        elif action == 4 and len(servers) > 2:
            leaving = servers.pop()
            leaving.hand_over(5)
            leaving.close()
        feeding.epoch()
        for _ in range(5):
            check_reads(client, feeding.committed, rng)
        for each in subscriptions:
            if rng.random() < 0.5:
                while each.since != job.harness.checkpoint:
                    assert each.state == feeding.committed[each.next()][each.name]
