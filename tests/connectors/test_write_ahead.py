"""Write-ahead log of sinks: the driver sends logged records once, whatever dies, and then deletes the log."""

import json
from itertools import count

import pytest
from dying import Died, Dying
from files_helpers import context

from penstock.checkpoint.wal import WriteAheadLog
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.driver.epoch_settings import Settings
from penstock.errors import PenstockError
from penstock.runtime.operators import EpochInfo
from penstock.state.driver_storage import DriverStorage
from penstock.state.files import CorruptFile
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import MissingObject
from penstock.testing import JobHarness

NUMBERS = range(60)
INLINE = Settings(inline_bytes=1 << 20, asynchronous=False)
FILES = Settings(inline_bytes=0, asynchronous=False)
POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Letters(Sink):
    """Skips epochs that it already has, like a database with a ledger of epochs."""

    concurrent_commit = True

    def __init__(self):
        self.given = {}
        self.sent = []
        self.refuse = set()

    def __getstate__(self):
        return {}

    def create_writer(self, context):
        return LetterWriter(context)

    def commit(self, commits, context):
        for commit in commits:
            letters = [letter for chunk in written_ahead(commit, context) for letter in json.loads(chunk)]
            name = commit.lineage, commit.epoch, commit.subtask
            if commit.epoch in self.refuse:
                self.refuse.remove(commit.epoch)
                raise ConnectionError("connection refused")
            if name not in self.given:
                self.given[name] = letters
                self.sent += letters
            assert self.given[name] == letters


class LetterWriter(SinkWriter):
    def __init__(self, context):
        self.log = WriteAhead(context)

    def begin_epoch(self, epoch):
        self.log.begin(epoch)

    def write(self, value):
        self.log.add(json.dumps([value]).encode())

    def prepare_commit(self):
        return self.log.seal()


def job(sink, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(NUMBERS).uid("numbers").rebalance().sink_to(sink).uid("letters")
    return JobHarness(env, parallelism=2, **options)


def files(storage):
    return storage.list("wal/")


@pytest.fixture(params=["memory", "inline", "files", "objects"])
def options(request, tmp_path):
    if request.param == "memory":
        return {}
    if request.param == "objects":
        return {"storage": ObjectStorage(f"memory://{tmp_path.name}"), "settings": FILES}
    settings = INLINE if request.param == "inline" else FILES
    return {"storage": LocalStorage(tmp_path / "checkpoints"), "settings": settings}


class TestInAJob:
    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize("late", [False, True])
    def test_every_record_is_sent_once_after_a_crash_at_any_point(self, point, options, late):
        sink = Letters()
        with job(sink, commits_late=late, **options) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
            # The epoch that ends the input logs nothing.
            assert files(harness.storage) == []
        assert sorted(sink.sent) == list(NUMBERS)

    def test_a_large_log_is_kept_in_files_until_the_next_epoch_is_committed(self, tmp_path):
        sink = Letters()
        storage = LocalStorage(tmp_path)
        with job(sink, storage=storage, settings=FILES) as harness:
            for epoch in range(1, 4):
                harness.epoch(10)
                assert {name.split("/")[1] for name in files(storage)} == {f"{epoch:012d}"}
                assert len(files(storage)) == 2

    def test_a_small_log_is_stored_in_the_manifest(self, tmp_path):
        storage = LocalStorage(tmp_path)
        with job(Letters(), storage=storage, settings=INLINE) as harness:
            harness.epoch(10)
            assert files(storage) == []

    def test_a_new_driver_sends_the_same_records_after_a_rejection(self, options):
        sink = Letters()
        sink.refuse = {2}
        with job(sink, **options) as harness:
            harness.epoch(10)
            with pytest.raises(ConnectionError):
                harness.epoch(10)
            harness.crash()
            assert sorted(sink.sent) == list(range(20))

    def test_files_of_a_failed_attempt_are_deleted(self, tmp_path):
        storage = LocalStorage(tmp_path)
        storage.write("wal/000000000002/0123.log", b"from an attempt with records in another order")
        sink = Letters()
        with job(sink, storage=storage, settings=FILES) as harness:
            harness.epoch(10)
            harness.epoch(10)
            assert len(files(storage)) == 3
            harness.crash()
            harness.epoch(10)
            assert {name.split("/")[1] for name in files(storage)} == {"000000000003"}

    @pytest.mark.parametrize("late", [False, True])
    def test_a_driver_can_die_at_any_write(self, tmp_path, late):
        for left in count():
            sink = Letters()
            storage = Dying(tmp_path / str(left))
            with job(sink, storage=storage, settings=FILES, commits_late=late) as harness:
                harness.epoch(10)
                storage.left = left
                try:
                    harness.epoch(10)
                    harness.epoch(10)
                    died = False
                except Died:
                    died = True
                storage.left = None
                harness.crash()
                harness.epochs(10)
                kept = {"000000000005", "000000000006"} if late else {"000000000006"}
                assert {name.split("/")[1] for name in files(storage)} == kept
            assert sorted(sink.sent) == list(NUMBERS)
            if not died:
                assert left > 8
                return


class TestDamage:
    @pytest.fixture
    def harness(self, tmp_path):
        sink = Letters()
        sink.refuse = {2}
        with job(sink, storage=LocalStorage(tmp_path), settings=FILES) as harness:
            harness.epoch(10)
            with pytest.raises(ConnectionError):
                harness.epoch(10)
            yield harness

    def path(self, harness):
        return harness.storage.root / next(name for name in files(harness.storage) if "000000000002" in name)

    def test_a_missing_file_is_reported_with_sink_and_epoch(self, harness):
        path = self.path(harness)
        path.unlink()
        with pytest.raises(MissingObject, match=rf"{path.name}', which sink 'letters' needs to commit epoch 2"):
            harness.crash()

    @pytest.mark.parametrize("where", [0, 9, 17, -1])
    def test_a_changed_byte_is_detected(self, harness, where):
        path = self.path(harness)
        data = bytearray(path.read_bytes())
        data[where] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptFile, match=rf"{path.name}', which sink 'letters' needs to commit epoch 2, is dam"):
            harness.crash()

    @pytest.mark.parametrize("size", [0, 1, 20, -1])
    def test_a_truncated_file_is_detected(self, harness, size):
        path = self.path(harness)
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(CorruptFile, match="'letters' needs to commit epoch 2"):
            harness.crash()


class TestAlone:
    def write(self, chunks, storage, inline=0):
        log = WriteAhead(context())
        log.begin(EpochInfo("lineage", 7, 0, storage, inline))
        for chunk in chunks:
            log.add(chunk)
        return log.seal()

    def read(self, payload, storage):
        commit = Commit(lineage="lineage", epoch=7, subtask=0, payload=payload)
        return list(written_ahead(commit, CommitContext(uid="letters", wal=WriteAheadLog(storage))))

    @pytest.mark.parametrize("chunks", [[b""], [b"a", b"", b"c"], [bytes(5 << 20), b"x"]])
    @pytest.mark.parametrize("inline", [0, 1 << 30])
    def test_chunks_are_read_back_in_order(self, tmp_path, chunks, inline):
        storage = LocalStorage(tmp_path)
        payload = self.write(chunks, storage, inline)
        assert self.read(payload, storage) == chunks
        assert self.write(chunks, storage, inline) == payload
        assert len(files(storage)) == (inline == 0)

    def test_the_log_is_inline_if_tasks_cannot_write_files(self):
        chunks = [bytes(1 << 20)] * 80
        assert self.read(self.write(chunks, None), DriverStorage()) == chunks

    def test_a_large_epoch_spans_several_files(self, tmp_path):
        storage = LocalStorage(tmp_path)
        chunks = [bytes([number]) * (16 << 20) for number in range(9)]
        payload = self.write(chunks, storage)
        assert len(files(storage)) == 3
        assert len(payload) < 300
        assert self.read(payload, storage) == chunks

    def test_an_empty_log_has_no_committable(self, tmp_path):
        assert self.write([], LocalStorage(tmp_path)) is None

    def test_the_log_accepts_only_bytes_within_an_epoch(self, tmp_path):
        log = WriteAhead(context())
        with pytest.raises(PenstockError, match=r"operator 'files' \(uid 'out'\) accepts bytes"):
            log.add(b"early")
        log.begin(EpochInfo("lineage", 7, 0))
        with pytest.raises(PenstockError, match="got str"):
            log.add("text")
