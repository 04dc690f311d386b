"""The engine and directory of a replica: backend names, custom backends, several directories."""

from itertools import pairwise
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    StreamExecutionEnvironment,
)
from penstock.state.backend_settings import backend_settings
from penstock.state.backends import Allocation, Backend, EngineFactory, ReplicaStore, replica_directory
from penstock.state.blocks import Blocks
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.testing import JobHarness


class Hoarder(EngineFactory):
    """A custom backend: LMDB that records which directories were opened."""

    opened: list[str] = []

    def open(self, directory):
        self.opened.append(directory)
        return LmdbEngine(directory)


OWN = f"{__name__}:Hoarder"


def chosen(backend=None, **settings):
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({key.replace("__", "."): value for key, value in settings.items()})
    )
    if backend is not None:
        env.set_state_backend(backend)
    return backend_settings(env.get_configuration())


class TestBackendSelection:
    @pytest.mark.parametrize(
        ("backend", "name", "in_files"),
        [
            (None, "filesystem", False),
            (MemoryStateBackend(), "memory", False),
            (FsStateBackend("file:///tmp/x"), "filesystem", True),
            (HashMapStateBackend(), "memory", False),
            (RocksDBStateBackend("file:///tmp/x"), "rocksdb", True),
        ],
        ids=str,
    )
    def test_a_backend_object_selects_the_engine(self, backend, name, in_files):
        found, files = chosen(backend)
        assert (found.name, files) == (name, in_files)

    @pytest.mark.parametrize(
        ("given", "name", "in_files"),
        [
            ("jobmanager", "memory", False),
            ("hashmap", "memory", True),
            ("FileSystem", "filesystem", True),
            ("fs", "filesystem", True),
            ("rocksdb", "rocksdb", True),
            (OWN, OWN, True),
        ],
    )
    def test_the_state_backend_setting_selects_the_engine(self, given, name, in_files):
        found, files = chosen(state__backend=given, state__checkpoints__dir="/tmp/x")
        assert (found.name, files) == (name, in_files)

    def test_a_checkpoint_directory_alone_selects_the_filesystem_backend(self):
        assert chosen(state__checkpoints__dir="/tmp/x")[0].name == "filesystem"

    @pytest.mark.parametrize("backend", [EmbeddedRocksDBStateBackend(), CustomStateBackend(OWN)], ids=repr)
    def test_a_backend_that_needs_a_checkpoint_directory_is_rejected_without_one(self, backend):
        with pytest.raises(BadSetting, match=r"state.checkpoints.dir is not set") as caught:
            chosen(backend)
        assert "state.checkpoints.dir" in caught.value.fix

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("rockdb", "state.backend is 'rockdb'"),
            ("no.such:Factory", "cannot be imported: No module named 'no'"),
            (f"{__name__}:Nothing", "cannot be imported.*Nothing"),
            (f"{__name__}:chosen", "is not a subclass of EngineFactory"),
        ],
    )
    def test_an_invalid_backend_is_rejected_before_anything_runs(self, given, message):
        with pytest.raises(BadSetting, match=message):
            chosen(state__backend=given, state__checkpoints__dir="/tmp/x")

    def test_rocksdb_uses_the_configured_directories_and_threads(self):
        backend = RocksDBStateBackend("file:///tmp/x")
        backend.set_db_storage_paths("/disk1", "/disk2")
        backend.set_number_of_transfer_threads(7)
        found, _ = chosen(backend)
        assert found.directories == ["/disk1", "/disk2"]
        assert found.options["rocksdb.checkpoint.transfer.thread.num"] == "7"

    def test_deprecated_setting_names_are_accepted(self):
        settings = {
            "state.backend.rocksdb.localdir": "/var/rocks",
            "state.backend.rocksdb.timer-server.factory": "HEAP",
            "state.backend": "rocksdb",
            "state.checkpoint.dir": "/tmp/x",
        }
        found, _ = chosen(**{key.replace(".", "__"): value for key, value in settings.items()})
        assert found.directories == ["/var/rocks"]
        assert found.options["rocksdb.timer-service.factory"] == "HEAP"

    def test_disabling_incremental_snapshots_changes_no_setting(self):
        one, other = (RocksDBStateBackend("file:///tmp/x", incremental) for incremental in (False, True))
        assert one.settings() == other.settings()
        assert (one.is_incremental_checkpoints_enabled(), other.is_incremental_checkpoints_enabled()) == (False, True)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("execution.checkpointing.num-retained", "0", "num-retained is '0'"),
        ("execution.checkpointing.num-retained", "two", "num-retained is 'two'. Set it to an integer from 1"),
        ("penstock.checkpoint.base.min-bytes", "1 m.b.", "min-bytes is '1 m.b.'"),
        ("penstock.state.overlay.memory", "much", "overlay.memory is 'much'"),
        ("state.backend.memory.max-state-size", "-1", "max-state-size is '-1'"),
        ("state.backend.rocksdb.checkpoint.transfer.thread.num", "few", "thread.num is 'few'"),
    ],
)
def test_an_invalid_number_is_rejected_with_the_name_of_its_setting(key, text, message):
    with pytest.raises(BadSetting, match=message) as caught:
        StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({key: text}))
    assert caught.value.fix


class TestCustomBackend:
    def test_a_custom_backend_stores_a_jobs_state(self):
        Hoarder.opened.clear()
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection([]).key_by(lambda word: word).reduce(lambda a, b: a + b)
        with JobHarness(stream, backend=OWN) as job:
            job.push("a").epoch()
            job.push("a", "b").epoch()
            assert sorted(job.output) == ["a", "aa", "b"]
        assert Hoarder.opened

    def test_a_custom_backend_receives_its_settings(self):
        settings = {"state.backend": OWN, "state.checkpoints.dir": "/tmp/x", "state.backend.custom.depth": "3"}
        found, _ = chosen(**{key.replace(".", "__"): value for key, value in settings.items()})
        assert found.options["custom.depth"] == "3"


def groups_of(block):
    return range(8 * block, 8 * block + 8)


def places(backend, operators=("one", "two", "three", "four"), blocks=16):
    return {
        (uid, block): Path(replica_directory(backend, "lineage", uid, groups_of(block))).parents[2].name
        for uid in operators
        for block in range(blocks)
    }


class TestSeveralDirectories:
    @pytest.fixture
    def disks(self, tmp_path):
        return [str(tmp_path / name) for name in ("d0", "d1", "d2", "d3")]

    def test_round_robin_starts_with_the_first_directory(self, disks):
        found = places(Backend(name="filesystem", directories=disks, allocation=Allocation.ROUND_ROBIN))
        assert [found["one", block] for block in range(6)] == ["d0", "d1", "d2", "d3", "d0", "d1"]
        assert {found[uid, 0] for uid in ("one", "two", "three", "four")} == {"d0"}

    def test_random_start_cycles_from_a_different_directory_per_operator(self, disks):
        found = places(
            Backend(name="filesystem", directories=disks, allocation=Allocation.RANDOM_START),
            [f"op {n}" for n in range(20)],
        )
        assert {found[f"op {n}", 0] for n in range(20)} == {"d0", "d1", "d2", "d3"}
        order = [int(found["op 3", block][1:]) for block in range(5)]
        assert all((later - earlier) % 4 == 1 for earlier, later in pairwise(order))

    def test_least_loaded_chooses_the_directory_with_the_fewest_replicas(self, disks):
        backend = Backend(name="filesystem", directories=disks, allocation=Allocation.LEAST_LOADED)
        for number, count in enumerate((3, 1, 0, 2)):
            for block in range(count):
                Path(disks[number], "other", "operator", f"{block:05d}").mkdir(parents=True)
        assert Path(replica_directory(backend, "lineage", "one", groups_of(0))).parents[2].name == "d2"

    @pytest.mark.parametrize("allocation", list(Allocation))
    def test_an_existing_replica_is_found_with_every_allocation_strategy(self, disks, allocation):
        Path(
            replica_directory(Backend(name="filesystem", directories=disks[3:]), "lineage", "one", groups_of(5))
        ).mkdir(parents=True)
        found = replica_directory(
            Backend(name="filesystem", directories=disks, allocation=allocation), "lineage", "one", groups_of(5)
        )
        assert Path(found).parents[2].name == "d3"

    def test_an_unavailable_disk_is_skipped(self, disks, tmp_path):
        (tmp_path / "d1").write_text("not a directory")
        found = set(places(Backend(name="filesystem", directories=disks, allocation=Allocation.ROUND_ROBIN)).values())
        assert found == {"d0", "d2", "d3"}

    def test_replicas_are_spread_over_all_directories(self, disks, tmp_path):
        store = ReplicaStore(Backend(name="filesystem", directories=disks, allocation=Allocation.ROUND_ROBIN))
        open_engine = store.opener("lineage")
        for block in range(8):
            open_engine("one", groups_of(block)).apply(None, [], b"here")
        assert all(any(Path(disk).rglob("data.mdb")) for disk in disks)

    def test_commas_separate_directories_in_the_setting(self):
        found, _ = chosen(**{"state__backend__local-dir": "/a, /b"})
        assert found.directories == ["/a", "/b"]

    def test_an_unknown_allocation_strategy_is_rejected(self):
        with pytest.raises(BadSetting, match="allocation is 'BEST'"):
            chosen(**{"state__backend__local-dir__allocation": "BEST"})


class TestFormerBlocks:
    def open_all(self, store, count):
        blocks = Blocks(max_parallelism=128, count=count)
        for block in blocks.numbers:
            engine = store.opener("lineage")("one", blocks.groups(block))
            engine.apply(engine.position(), [], b"here")
            engine.release()

    @pytest.mark.parametrize("name", ["filesystem", "rocksdb"])
    @pytest.mark.parametrize("before", [2, 8])
    def test_replicas_of_split_and_joined_blocks_are_deleted(self, tmp_path, name, before):
        backend = Backend(name=name, directories=[str(tmp_path / disk) for disk in ("d0", "d1")])
        Path(replica_directory(backend, "lineage", "one", range(1))).with_name("00003").mkdir(parents=True)
        Path(replica_directory(backend, "lineage", "two", range(128))).mkdir(parents=True)
        self.open_all(ReplicaStore(backend), before)
        other_process = ReplicaStore(backend)
        self.open_all(other_process, 4)
        expected = {f"{start:05d}-{start + 32:05d}" for start in range(0, 128, 32)} | {"00000-00128"}
        assert {path.name for path in tmp_path.glob("*/*/*/*")} == expected
        self.open_all(other_process, before)
        self.open_all(other_process, 4)
        assert {path.name for path in tmp_path.glob("*/*/*/*")} == expected

    def test_a_replica_in_memory_is_dropped_with_its_block(self):
        store = ReplicaStore(Backend(name="memory"))
        self.open_all(store, 16)
        self.open_all(store, 4)
        assert len(store._factory._engines) == 4
        self.open_all(store, 16)
        assert len(store._factory._engines) == 16

    def test_the_replica_of_an_unchanged_block_stays(self):
        open_engine = ReplicaStore(Backend(name="memory")).opener("lineage")
        kept = open_engine("one", range(8))
        open_engine("one", range(8, 16))
        open_engine("one", range(8, 12))
        assert open_engine("one", range(8)) is kept


def test_a_process_has_one_memory_replica_per_block():
    open_engine = ReplicaStore(Backend(name="memory")).opener("lineage")
    assert isinstance(open_engine("one", groups_of(0)), MemoryEngine)
    assert open_engine("one", groups_of(0)) is open_engine("one", groups_of(0))
    assert open_engine("one", groups_of(0)) is not open_engine("one", groups_of(1))
