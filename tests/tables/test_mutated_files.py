"""Files of savepoints and checkpoints damaged by disks, copies or people are rejected with file name and reason."""

import os
import random
import resource
import shutil

import pytest
from forging import forged, write_metadata
from table_jobs import saved
from typed_job import RECORDS, tolerated, typed

from penstock.errors import PenstockError
from penstock.savepoint.format import (
    METADATA,
    SavepointError,
    savepoint_storage,
)
from penstock.state.files import CorruptFile
from penstock.tables import Checkpoint, Savepoint
from penstock.testing import JobHarness

MUTATIONS = int(os.environ.get("PENSTOCK_MUTATIONS", "500"))
"""Number of mutations; a twentieth for slow readers. The long run uses 10000: 36 s."""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return saved(typed(), tmp_path_factory.mktemp("good"), RECORDS[:2], RECORDS[2:], max_parallelism=4).path


def mutated(data, random):
    """Return the data with one change of the kind that disks, copies and people make."""
    data = bytearray(data)
    place = random.randrange(len(data))
    kind = random.randrange(6)
    if kind == 0:
        data[place] ^= 1 << random.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[place:place] = random.randbytes(random.randrange(1, 64))
    elif kind == 3:
        del data[place : place + random.randrange(1, 64)]
    elif kind == 4:
        data[place : place + random.randrange(1, 64)] = bytes(random.randrange(1, 64))
    else:
        other = random.randrange(len(data))
        data[place], data[other] = data[other] ^ 0x55, data[place]
    return bytes(data)


class TestMutatedFiles:
    def test_a_mutated_file_is_rejected_with_its_name_and_directory(self, good, tmp_path):
        chance = random.Random(7)
        shutil.copytree(good, tmp_path / "victim")
        victim = tmp_path / "victim"
        its_files = [path for path in victim.rglob("*") if path.is_file()]
        assert len(its_files) > 2
        for _ in range(MUTATIONS):
            file = chance.choice(its_files)
            whole = file.read_bytes()
            broken = mutated(whole, chance)
            if broken == whole:
                continue
            file.write_bytes(broken)
            with pytest.raises((SavepointError, CorruptFile)) as refused:
                read_all(victim)
            assert file.name in str(refused.value)
            assert str(victim) in str(refused.value)
            file.write_bytes(whole)
        read_all(victim)

    def test_mutated_files_with_valid_hashes_use_bounded_memory(self, good, tmp_path):
        chance = random.Random(11)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = savepoint_storage(good).read(METADATA)[len(b"PENSTOCK SAVEPOINT\n") + 16 :]
        target = tmp_path / "victim"
        for number in range(MUTATIONS // 20):
            if number % 2:
                path = forged(good, target)
                write_metadata(path, mutated(body, chance))
            else:
                path = forged(good, target, change_file=lambda data: mutated(data, chance))
            tolerated(lambda path=path: read_all(path))
            shutil.rmtree(target)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024

    def test_mutated_entries_are_read_or_rejected(self, good, tmp_path):
        chance = random.Random(13)

        def change(group, entries):
            found = dict(entries)
            key = chance.choice(list(found))
            data = found.pop(key)
            if chance.random() < 0.5:
                key = key[:2] + mutated(key[2:], chance)
            else:
                data = mutated(data or b"\0", chance)
            return list({**found, key: data}.items())

        for _ in range(MUTATIONS // 20):
            path = forged(good, tmp_path / "victim", change_entries=change)
            tolerated(lambda path=path: read_all(path))
            shutil.rmtree(path)

    def test_a_mutated_checkpoint_file_is_rejected_or_has_no_effect(self, tmp_path):
        chance = random.Random(17)
        with JobHarness(typed(), backend="filesystem", max_parallelism=4) as job:
            job.push(*RECORDS).epoch()
            job.push(*RECORDS).epoch()
            shutil.copytree(job.storage.root, tmp_path / "victim")
        victim = tmp_path / "victim"
        its_files = [path for path in victim.rglob("*") if path.is_file() and path.stat().st_size]
        whole_rows = checkpoint_rows(victim)
        for _ in range(MUTATIONS // 20):
            file = chance.choice(its_files)
            whole = file.read_bytes()
            file.write_bytes(mutated(whole, chance))
            found, refused = whole_rows, None
            try:
                found = checkpoint_rows(victim)
            except PenstockError as error:
                refused = str(error)
            assert found == whole_rows
            assert refused is None or str(victim) in refused
            file.write_bytes(whole)


def read_all(path):
    savepoint = Savepoint.load(path)
    for info in savepoint.states():
        for _ in savepoint.state(info.uid, info.name).batches():
            pass


def checkpoint_rows(path):
    found = Checkpoint.load(path)
    return {info.name: sorted(map(repr, found.state(info.uid, info.name).rows())) for info in found.states()}
