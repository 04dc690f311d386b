"""Sweeps follow what changes between two of them, and remove what a look at all manifests would remove."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from msgspec.structs import replace

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import oldest_walk
from penstock.checkpoint.manifest import BaseHandle, Manifest, OperatorSnapshot, manifest_name, publish
from penstock.checkpoint.needed_files import files_needed
from penstock.checkpoint.pins import Pin, PinLimits, ServerPins
from penstock.checkpoint.retention import Retention
from penstock.runtime.report import DeltaHandle
from penstock.state.blocks import Blocks, bytes_by_block
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import StorageError

GROUPS = 64
FOLDERS = ("manifests/", "deltas/", "bases/")


class Failing(LocalStorage):
    """Fails after some more files are deleted."""

    left = None

    def delete_all(self, names):
        for name in names:
            if self.left is not None:
                if not self.left:
                    raise StorageError("No more.")
                self.left -= 1
            self.delete(name)


class Lineage:
    """Manifests with random deltas, bases, splits and joins of blocks, and their files."""

    def __init__(self, root, dice):
        self.storage = Failing(root, synced=False)
        self.dice = dice
        self.manifests = {}
        self.blocks = {uid: Blocks(max_parallelism=GROUPS, count=16) for uid in ("one", "two")}
        self.merged = {}
        """Bases that the next manifest announces, by uid and first key group."""

    @property
    def last(self) -> Manifest:
        return self.manifests[max(self.manifests)]

    def merge(self):
        """Write bases of some blocks as of the last checkpoint."""
        self.merged = {}
        for uid, blocks in self.last.blocks.items():
            for block in self.dice.sample(blocks.numbers, len(blocks.numbers) // 3):
                groups = blocks.groups(block)
                name = f"bases/{self.last.id:012d}/{uid}-{groups.start}.arrow"
                if self.dice.random() < 0.2:
                    name = ""
                else:
                    self.storage.write(name, b"")
                base = BaseHandle(id=self.last.id, name=name, size=1, end=groups.stop)
                self.merged.setdefault(uid, {})[groups.start] = base

    def epoch(self):
        """Publish the next manifest."""
        dice, number = self.dice, max(self.manifests, default=0) + 1
        before = self.manifests.get(number - 1)
        bases = {} if before is None else dict(before.bases)
        since = {} if before is None else {uid: dict(blocks) for uid, blocks in before.since_base.items()}
        for uid, handles in self.merged.items():
            bases[uid] = BaseRuns(bases.get(uid, {})).replaced(handles)
            for block in self.blocks[uid].numbers if before is None else before.blocks[uid].numbers:
                if self.manifests[number - 1].blocks[uid].groups(block).start in handles:
                    since.get(uid, {}).pop(block, None)
        for uid, handles in bases.items():
            # Handles move when the walk gets long.
            moved = {
                first: replace(each, id=number - 1)
                for first, each in handles.items()
                if each.id < number - 12 and not any(since.get(uid, {}).values())
            }
            bases[uid] = {**handles, **moved} if moved else handles
        self.merged = {}
        for uid, blocks in self.blocks.items():
            if dice.random() < 0.1:
                self.blocks[uid] = Blocks(max_parallelism=GROUPS, count=dice.choice([8, 16, 32]))
            if before is not None:
                since[uid] = bytes_by_block(since.get(uid, {}), blocks, self.blocks[uid])
        operators = {}
        for uid, blocks in self.blocks.items():
            deltas = []
            for subtask in range(dice.randrange(5)):
                changed = sorted(dice.sample(blocks.numbers, dice.randint(1, 4)))
                # The same content can occur twice.
                name = f"deltas/{number:012d}/{dice.choice(['same', f'{uid}-{subtask}'])}.arrow"
                inline = b"" if dice.random() < 0.2 else None
                if inline is None:
                    self.storage.write(name, b"")
                deltas.append(DeltaHandle(name=name, size=1, entries=1, blocks=changed, inline=inline))
                for block in changed:
                    since.setdefault(uid, {})[block] = since.get(uid, {}).get(block, 0) + 1
            operators[uid] = OperatorSnapshot(name=uid, parallelism=4, max_parallelism=GROUPS, states={}, deltas=deltas)
        log = {} if before is None else dict(before.log_index)
        log = {name: at for name, at in log.items() if dice.random() < 0.9}
        log[f"offsets/{number}"] = number
        manifest = Manifest(
            format=4,
            lineage="lineage",
            id=number,
            batch=None,
            parent=b"",
            token="",
            timestamp=0,
            ended=False,
            operators=operators,
            committables=[],
            records={},
            spark_log={},
            log_index=log,
            bases=bases,
            since_base=since,
            blocks=dict(self.blocks),
        )
        publish(self.storage, manifest)
        self.manifests[number] = manifest

    def kept(self, retained, reading):
        """Return the numbers of the checkpoints that stay."""
        last = self.last.id
        retained = {number for number in range(last - retained, last) if self.storage.exists(manifest_name(number))}
        return sorted({*retained, *reading, last})

    def needed(self, numbers, last=None):
        """Return what these checkpoints need, by a look at every delta that a walk passes."""
        kept, last = [self.manifests[number] for number in numbers], last or self.last.id
        files = {base.name for each in kept for handles in each.bases.values() for base in handles.values()}
        files |= {manifest_name(number) for each in kept for number in each.log_index.values()}
        oldest = kept[0]
        for number in range(min(oldest_walk(oldest) + 1, oldest.id), last + 1):
            manifest = self.manifests[number]
            files.add(manifest_name(number))
            for uid, snapshot in manifest.operators.items():
                runs = BaseRuns(oldest.bases.get(uid, {}))
                for delta in snapshot.deltas:
                    parts = [part for block in delta.blocks for part in runs.parts(manifest.blocks[uid].groups(block))]
                    if delta.inline is None and any(base is None or base.id < number for _, base in parts):
                        files.add(delta.name)
        return files - {""}

    def files(self):
        return {name for folder in FOLDERS for name in self.storage.list(folder)}


class Servers:
    """State servers that pin checkpoints, and the job's view of their pins."""

    def __init__(self, line):
        self.line, self.dice = line, line.dice
        self.pins = [Pin(line.storage, f"{number:x}") for number in range(3)]
        self.now = 0.0
        self.reader = self.new_reader()

    def new_reader(self):
        return ServerPins(self.line.storage, PinLimits(60_000, 25), lambda: self.now)

    def act(self):
        """Let a server pin a checkpoint or die. Some pins come too late: the files are gone already."""
        dice, last = self.dice, self.line.last.id
        pin = dice.choice(self.pins)
        if dice.random() < 0.3:
            pin.release()
        else:
            pin.move(max(1, last - dice.choice([0, 0, 1, 2, 5, 15, 40])))
        self.now += 0.1

    def readable(self, files):
        """Return the pinned checkpoints that can still be read, if these files exist."""
        found = set()
        for number in self.reader.numbers(self.line.last):
            followed = {manifest_name(each) for each in range(number, self.line.last.id + 1)}
            if followed | self.line.needed([number], number) <= files:
                found.add(number)
        return found


@pytest.mark.parametrize("seed", range(10))
def test_sweeps_keep_exactly_what_the_retained_checkpoints_need(tmp_path, seed):
    dice = random.Random(seed)
    line, retained = Lineage(tmp_path, dice), dice.choice([1, 1, 3])
    servers = Servers(line)
    retention, saving = Retention(line.storage, retained, servers.reader), []
    swept, pinned = False, 0
    for _ in range(60):
        line.epoch()
        if dice.random() < 0.9:
            # Otherwise a sink failed to commit, and the driver recovered from the manifest.
            retention.published(line.last)
        if dice.random() < 0.05:
            # The driver restarts.
            servers.reader = servers.new_reader()
            retention, swept = Retention(line.storage, retained, servers.reader), False
        if dice.random() < 0.3:
            line.merge()
        if dice.random() < 0.4:
            servers.act()
        if dice.random() < 0.1 and swept:
            # Less than the next sweep would delete, or more.
            line.storage.left = dice.randrange(20)
            with suppress(StorageError):
                retention.sweep(line.last, saving, dice.random() < 0.2)
            line.storage.left = None
        elif dice.random() < 0.5:
            swept = True
            if dice.random() < 0.3:
                # A failed attempt leaves a file behind. The next sweep that lists finds it.
                line.storage.write(f"deltas/{line.last.id:012d}/failed.arrow", b"")
            listing = dice.random() < 0.2
            began = line.files()
            reading = {*saving, *servers.readable(began)}
            pinned += len(reading - {line.last.id, *saving})
            # What the next epoch can still announce must stay.
            young = {name for name in began if name.startswith("bases/") and int(name.split("/")[1]) >= line.last.id}
            young |= {name for name in began for number in reading if name.startswith(f"bases/{number:012d}/")}
            kept = line.kept(retained, reading)
            needed = line.needed(kept)
            assert files_needed([line.manifests[each] for each in kept], line.last.id, line.manifests.get) == needed
            gone = retention.sweep(line.last, saving, listing)
            left = line.files()
            assert left == began - set(gone)
            # A pin can come late: the checkpoint can be read, but no replica goes on from it without its bases.
            assert needed & began <= left
            assert all(line.needed([each], each) <= left for each in kept)
            assert retention._needed.names() == needed
            failed = {name for name in left if name.endswith("failed.arrow")}
            assert left - failed <= needed | young
            assert not (listing and failed)
        if dice.random() < 0.2:
            saving = [line.last.id] if not saving else []
    assert pinned


def test_a_sweep_keeps_the_files_of_a_checkpoint_that_was_not_passed_to_it(tmp_path):
    line = Lineage(tmp_path, random.Random(3))
    retention = Retention(line.storage, 1)
    for number in range(1, 9):
        line.epoch()
        if number != 6:
            # After the sixth, a sink failed to commit, and the driver recovered from its manifest.
            retention.published(line.last)
            retention.sweep(line.last, listing=number in (1, 8))
    assert any(name.startswith("deltas/000000000006/") for name in line.needed([8]))
    assert line.needed([7, 8]) <= line.files()


def test_a_checkpoint_pinned_between_two_retained_ones_keeps_its_base(tmp_path):
    line = Lineage(tmp_path, random.Random(5))
    servers = Servers(line)
    retention = Retention(line.storage, 1, servers.reader)
    early, late = servers.pins[:2]
    bases = set()
    for number in range(1, 30):
        line.epoch()
        retention.published(line.last)
        if number == 5:
            early.move(5)
        if number == 12:
            late.move(12)
            bases = {base.name for each in line.last.bases.values() for base in each.values()} - {""}
        retention.sweep(line.last, listing=number == 1)
        line.merge()
        if number > 12:
            assert bases <= line.files()
        if number == 20:
            early.release()
    assert bases - line.needed([28, 29])
