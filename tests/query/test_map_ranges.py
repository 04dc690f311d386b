"""Ranges of a map: the same entries in the same order as of the complete map, without reading it."""

import random
from datetime import date
from uuid import UUID

import pytest
from query_jobs import environment, new_follower

from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.query.errors import UnknownKey
from penstock.query.map_ranges import Bounds, map_page
from penstock.query.reads import MapRange, Reads
from penstock.query.values import Values
from penstock.state.descriptors import MapStateDescriptor
from penstock.state.engines.memory import _MemoryReader
from penstock.state.keys import encode_key
from penstock.state.ttl_config import StateTtlConfig
from penstock.testing import JobHarness

SAMPLES = {
    "text": lambda rng: "".join(
        rng.choice("ab\0é\U0001f600") for _ in range(rng.choice([0, 1, 2, 3, 31, 32, 40, 300]))
    ),
    "bytes": lambda rng: bytes(rng.choice([0, 1, 255]) for _ in range(rng.choice([0, 1, 2, 5, 255, 256]))),
    "int": lambda rng: rng.choice([-1, 1]) * rng.randrange(1 << rng.choice([1, 5, 7, 8, 15, 16, 31, 32, 60, 63])),
}


def reader_of(entries):
    """Return a reader of stored map keys that are in memory."""
    ordered = sorted(entries.items())

    def read(start, end, portion):
        assert portion > 0
        return (each for each in ordered if each[0] >= start and (end is None or each[0] < end))

    return read


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_range_has_the_entries_and_the_order_of_the_keys(kind):
    rng = random.Random(7)
    sample = SAMPLES[kind]
    for _ in range(400):
        keys = {sample(rng) for _ in range(rng.randrange(1, 40))}
        if kind == "int":
            keys = {key for key in keys if -(1 << 63) <= key < 1 << 64}
        read = reader_of({b"\0" + encode_key(key): b"" for key in keys})
        known = sorted(keys)

        def bound(known=known):
            return rng.choice([None, None, rng.choice(known), sample(rng)])

        bounds = Bounds(start=bound(), after=bound(), stop=bound(), prefix=None if kind == "int" else bound())
        limit = rng.choice([None, 1, 3, 100])
        expected = [
            key
            for key in known
            if (bounds.start is None or key >= bounds.start)
            and (bounds.after is None or key > bounds.after)
            and (bounds.stop is None or key < bounds.stop)
            and (bounds.prefix is None or key.startswith(bounds.prefix))
        ]
        found, more = map_page(read, bounds, limit)
        shown = expected if limit is None else expected[:limit]
        assert [stored for stored, _ in found] == [b"\0" + encode_key(key) for key in shown], bounds
        assert more == (len(shown) < len(expected))


@pytest.mark.parametrize(
    "keys", [[], [1, "a"], [True], [None], [1.5], [(1, 2)], [date(2026, 1, 1)], [UUID(int=1)], [1 << 70], ["a", b"a"]]
)
def test_keys_without_an_order_of_bytes_are_left_to_a_read_of_the_complete_map(keys):
    read = reader_of({b"\0" + encode_key(key): b"" for key in keys})
    assert map_page(read, Bounds(), None) is None


def test_keys_that_are_stored_by_their_type_and_bounds_of_another_type_are_left_to_a_read_of_the_complete_map():
    assert map_page(reader_of({b"\0" + encode_key("a"): b"", b"\1x": b""}), Bounds(), None) is None
    read = reader_of({b"\0" + encode_key(1): b""})
    for bounds in (Bounds(start="a"), Bounds(stop=True), Bounds(after=1.0), Bounds(prefix=1)):
        assert map_page(read, bounds, None) is None
    assert map_page(read, Bounds(), -1) is None


class Names(KeyedProcessFunction):
    """Adds the name of a record to the map of its key; a name that starts with - is removed."""

    def __init__(self, ttl=None):
        self.ttl = ttl

    def open(self, runtime_context):
        descriptor = MapStateDescriptor("names", Types.STRING(), Types.LONG())
        descriptor.set_queryable("names")
        if self.ttl is not None:
            descriptor.enable_time_to_live(self.ttl)
        self.names = runtime_context.get_map_state(descriptor)

    def process_element(self, record, ctx):
        _, name = record
        if name == "-":
            self.names.clear()
        elif name.startswith("-"):
            self.names.remove(name[1:])
        else:
            self.names.put(name, len(name))


def job_with(ttl=None):
    stream = environment().from_collection([]).key_by(lambda record: record[0]).process(Names(ttl)).uid("names")
    return JobHarness(stream, backend="filesystem", max_parallelism=8)


class Pages:
    def __init__(self, job, retained=10):
        self.follower = new_follower(job.storage, retained=retained)
        self.reads = Reads(self.follower)

    def page(self, key="a", number=None, limit=None, cursor=None, **bounds):
        wanted = MapRange(limit=limit, cursor=cursor, **{each: encode_key(value) for each, value in bounds.items()})
        readable = self.follower.at(number)
        page = self.reads.entries(readable, "names", encode_key(key), wanted)
        state = self.reads.state(readable, "names").state
        values = Values(state.kind, state.type)
        return dict(values.entry(*part) for part in page.parts), page.cursor


@pytest.fixture
def entries_read(monkeypatch):
    """How many entries have been read from replicas."""
    counts = [0]
    between = _MemoryReader.between

    def counted(self, start, end):
        for entry in between(self, start, end):
            counts[0] += 1
            yield entry

    monkeypatch.setattr(_MemoryReader, "between", counted)
    return counts


def test_a_page_of_a_large_map_reads_little_more_than_its_entries(entries_read):
    with job_with() as job:
        names = [f"{number:06}" for number in range(10_000)] + [f"x{number}" for number in range(1_000)]
        job.push(*(("a", name) for name in names)).epoch()
        pages = Pages(job, retained=1)
        assert pages.follower.poll()
        ordered = sorted(names)
        for options, expected in (
            ({"limit": 10}, ordered[:10]),
            ({"prefix": "00123", "limit": 50}, [name for name in ordered if name.startswith("00123")]),
            ({"start": "005000", "stop": "005003"}, ["005000", "005001", "005002"]),
            ({"start": "x5", "limit": 3}, ["x5", "x50", "x500"]),
        ):
            entries_read[0] = 0
            found, _ = pages.page(**options)
            assert [*found] == expected
            # Of 11,000. Each of the four lengths is read for itself, in growing portions.
            assert entries_read[0] <= 80 + 4 * len(expected)
        entries_read[0] = 0
        assert [*pages.page()[0]] == ordered
        assert entries_read[0] >= len(names)


def test_pages_show_each_checkpoint_as_the_job_committed_it():
    rng = random.Random(11)
    names = ["".join(rng.choice("abc") for _ in range(rng.randrange(1, 5))) for _ in range(60)]
    with job_with() as job:
        pages, oracle, state = Pages(job), {}, set()
        for _ in range(10):
            for _ in range(30):
                name = rng.choice(names)
                action = rng.random()
                if action < 0.03:
                    job.push(("a", "-"))
                    state.clear()
                elif action < 0.4:
                    job.push(("a", f"-{name}"))
                    state.discard(name)
                else:
                    job.push(("a", name))
                    state.add(name)
            job.epoch()
            oracle[job.checkpoint] = sorted(state)
            assert pages.follower.poll()
        assert sum(map(bool, oracle.values())) > 5
        for number, expected in oracle.items():
            if not expected:
                with pytest.raises(UnknownKey):
                    pages.page(number=number)
                continue
            seen, cursor = [], None
            while cursor is not None or not seen:
                found, cursor = pages.page(number=number, limit=7, cursor=cursor)
                seen += found
            assert seen == expected
            found, _ = pages.page(number=number, prefix="ab")
            assert [*found] == [name for name in expected if name.startswith("ab")]


def test_a_range_outside_the_map_is_empty_and_a_key_without_a_map_is_unknown():
    with job_with() as job:
        job.push(("a", "one")).epoch()
        pages = Pages(job)
        assert pages.follower.poll()
        assert pages.page(start="z") == ({}, None)
        assert pages.page(limit=0) == ({}, None)
        with pytest.raises(UnknownKey):
            pages.page("b")


def test_entries_that_have_expired_are_left_out_of_ranges():
    ttl = StateTtlConfig.new_builder(Time.seconds(10)).disable_cleanup_in_background().build()
    with job_with(ttl) as job:
        pages = Pages(job)
        job.set_clock(1_000)
        job.push(*(("a", f"old{number}") for number in range(9))).epoch()
        job.set_clock(8_000)
        job.push(*(("a", f"new{number}") for number in range(9))).epoch()
        assert pages.follower.poll()
        assert len(pages.page(limit=20)[0]) == 18
        job.set_clock(12_000)
        job.push(("b", "x")).epoch()
        assert pages.follower.poll()
        assert [*pages.page(limit=4)[0]] == ["new0", "new1", "new2", "new3"]
        assert [*pages.page(start="new8", limit=4)[0]] == ["new8"]
        assert len(pages.page(number=2, limit=20)[0]) == 18
