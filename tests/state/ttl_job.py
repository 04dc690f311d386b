"""A keyed operator with TTL on real replicas and manifests, with a clock that tests control."""

import itertools
import shutil
import tempfile

from penstock.checkpoint.bases import all_blocks, merge_block
from penstock.checkpoint.manifest import FORMAT, Manifest, OperatorSnapshot, publish
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common import Time, Types
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.runtime.event_time import OperatorTime
from penstock.runtime.report import DeltaHandle
from penstock.state.access import StateAccess
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.entries import HEADER, state_id
from penstock.state.keys import decode_key, encode_key
from penstock.state.overlay import Overlay
from penstock.state.ttl import timed_name

ENGINES = {"memory": lambda path: MemoryEngine(), "lmdb": LmdbEngine, "rocksdb": RocksDbEngine}
"""Functions that open a replica at a path, by engine name."""

TTL = 100


class Average(AggregateFunction):
    """The accumulator is (sum, count)."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def descriptors():
    return [
        ValueStateDescriptor("value", int),
        ListStateDescriptor("list", int),
        MapStateDescriptor("map", str, int),
        ReducingStateDescriptor("reducing", lambda a, b: a + b, int),
        AggregatingStateDescriptor("aggregating", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])),
    ]


def ttl(milliseconds=TTL):
    """Return a builder without background cleanup, so that only the test's own strategies remove values."""
    return StateTtlConfig.new_builder(Time.milliseconds(milliseconds)).disable_cleanup_in_background()


class Clock:
    def __init__(self):
        self.now = 0
        self.watermark = 0

    def processing_time(self):
        return self.now

    def event_time(self):
        return self.watermark


class TtlJob:
    """A job whose states are attributes: `value`, `list`, `map`, `reducing`, `aggregating`. `cut` ends an epoch."""

    def __init__(self, engine, config=None, max_parallelism=4):
        self.max_parallelism = max_parallelism
        self.config = config
        self.storage = DriverStorage()
        self.directory = tempfile.mkdtemp(prefix="penstock-ttl-")
        self.open_at = ENGINES[engine]
        self.engines = {}
        self.generation = itertools.count()
        self.clock = Clock()
        self.version = None
        self.bases = {}
        self.replicas = None
        self.records = 0
        self.key = "k"
        self.start()

    def start(self):
        """Start a new process, in which functions are opened with the current configuration."""
        self.overlay = Overlay(self.max_parallelism)
        self.overlay.ttl.go_by(self.clock)
        self._restore(ManifestChain(self.storage, self.version))
        for descriptor in descriptors():
            if self.config is not None:
                descriptor.enable_time_to_live(self.config)
            setattr(self, descriptor.name, self.overlay.register(descriptor))
        self.begin()

    def _restore(self, history):
        now = self.clock.now, self.clock.watermark
        self.overlay.ttl.restore(history.schemas("uid"), history.forms("uid"), now)

    def begin(self):
        self.number = 1 if self.version is None else self.version.id + 1
        history = ManifestChain(self.storage, self.version)
        self._restore(history)
        self.access = StateAccess(history, None, self.open_engine, 0, blocks={"uid": self.overlay.blocks})
        self.replicas = self.access.replicas("uid")
        self.overlay.begin(self.number, self.replicas, self.access.timers("uid"), range(self.max_parallelism))
        self.use(self.key)

    def open_engine(self, uid, groups):
        if groups not in self.engines:
            self.engines[groups] = self.open_at(f"{self.directory}/{next(self.generation)}")
        return self.engines[groups]

    def use(self, key):
        self.key = key
        self.overlay.key = encode_key(key)
        return self

    def at(self, now, watermark=None):
        """Advance both clocks to this time, or the watermark to another, and fire due timers."""
        self.clock.now = now
        self.clock.watermark = now if watermark is None else watermark
        for kind, time in ("PROCESSING_TIME", self.clock.now), ("EVENT_TIME", self.clock.watermark):
            if self.overlay.timers[kind].is_due(time):
                assert list(self.overlay.timers[kind].due(time)) == [], "functions see timers of TTL"
        return self

    def cut(self):
        """End the epoch and start the next one."""
        self.overlay.processed(self.records)
        changes = list(self.overlay.changes())
        written = self.access.write_delta(self.number, changes, self.overlay.blocks)
        delta = DeltaHandle(
            name=written.name, size=written.size, entries=written.entries, blocks=written.blocks, inline=written.inline
        )
        snapshot = OperatorSnapshot(
            name="name",
            parallelism=1,
            max_parallelism=self.max_parallelism,
            states=self.overlay.schemas(),
            deltas=[delta] if changes else [],
            timers=self.overlay.least(),
            ttl=self.overlay.ttl.forms(),
        )
        self.replicas.close()
        manifest = Manifest(
            format=FORMAT,
            lineage="lineage",
            id=self.number,
            batch=None,
            parent=b"" if self.version is None else self.version.digest,
            token="token",
            timestamp=self.clock.now,
            ended=False,
            operators={"uid": snapshot},
            committables=[],
            records={},
            spark_log={},
            log_index={},
            bases={"uid": self.bases},
            blocks={"uid": self.overlay.blocks},
            since_base={},
            times={"uid": OperatorTime(subtasks=[self.clock.watermark])},
        )
        self.version = publish(self.storage, manifest)
        self.begin()
        return changes

    def merge(self):
        if self.version is not None:
            self.bases = {
                block.groups.start: merge_block(self.storage, self.version, block)
                for block in all_blocks("uid", self.overlay.blocks)
            }

    def crash(self):
        """Lose the process, and everything that is not in a manifest."""
        self.replicas.close()
        self.start()

    def lose_replicas(self):
        self.replicas.close()
        self.engines.clear()
        self.begin()

    def restore_from_base(self):
        """Start from the base of a full snapshot, without any replica."""
        self.cut()
        self.merge()
        self.cut()
        self.lose_replicas()
        self.crash()

    def stored(self, name):
        """Return the keys in committed storage of a state, each with the rest of the entry, expired or not."""
        numbers = {state_id(name), state_id(timed_name(name))}
        found = []
        for group in range(self.max_parallelism):
            reader = self.replicas.reader(group)
            for entry, _ in reader.scan(group.to_bytes(2, "big")) if reader is not None else ():
                _, number, length = HEADER.unpack_from(entry)
                if number in numbers:
                    found.append((decode_key(entry[HEADER.size :][:length]), entry[HEADER.size + length :]))
        return sorted(found)

    def close(self):
        self.replicas.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _nothing(job):
    pass


BETWEEN = {
    "nothing": _nothing,
    "spill": lambda job: job.overlay.spill(),
    "epoch": TtlJob.cut,
    "crash": lambda job: (job.cut(), job.crash()),
    "lost replicas": lambda job: (job.cut(), job.lose_replicas(), job.crash()),
    "base": TtlJob.restore_from_base,
}
"""Actions to run between any two steps: nothing, or a snapshot and some kind of restore."""


def steps(job, between, *steps):
    """Run each step (time, action, expected result), followed by `between`."""
    for time, step, expected in steps:
        given = step(job.at(time))
        given = list(given) if hasattr(given, "__next__") else given
        assert given == expected, f"at {time}"
        between(job)
