"""The replicas of state servers on local disk: where they are, when they go, and what happens if they are lost."""

import gc
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from query_jobs import environment, every_kind, until

from penstock.checkpoint.manifest import Manifest, latest
from penstock.common.options import BadSetting
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.query.errors import NotServed, UnknownJob, Unreachable
from penstock.query.followed_job import Directory, FollowedJob
from penstock.query.follower import Follower
from penstock.query.launching import Launch, LaunchedServer
from penstock.query.local_replicas import _COLLECTED, LocalReplicas, NoLocalReplicas
from penstock.query.reads import Reads
from penstock.state.backends import EngineFactory
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.engines.base import EngineError
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.keys import encode_key
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

CHOSEN = "queryable-state.server.state-backend"
KEYS = [f"k{i}" for i in range(60)]


class Payloads(KeyedProcessFunction):
    """Keeps 200 bytes for each key."""

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("payload", Types.STRING())
        descriptor.set_queryable("payloads")
        self.payload = runtime_context.get_state(descriptor)

    def process_element(self, number, ctx):
        self.payload.update(f"{number:0200d}")


class OwnFactory(EngineFactory):
    """A backend that a program brings along."""

    def open(self, directory):
        return LmdbEngine(directory)


@pytest.fixture(params=["filesystem", "rocksdb"])
def backend(request):
    return request.param


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "replicas"


@pytest.fixture
def local(directory):
    """`local(settings)` returns the replicas of a server."""
    made = []

    def replicas(**settings):
        made.append(LocalReplicas({"state.backend.local-dir": str(directory)} | settings))
        return made[-1]

    yield replicas
    for each in made:
        each.close()


@pytest.fixture
def job():
    with every_kind() as made:
        yield made


def run(job, add=0):
    job.push(*((key, number + add) for number, key in enumerate(KEYS, 1))).epoch()


def value(follower, key):
    reads = Reads(follower)
    return reads.get(follower.at(), "the value", encode_key(key))


def all_values(follower):
    return Reads(follower).get_many(follower.at(), "the value", [encode_key(key) for key in KEYS])


def engines(follower):
    return {type(replica._engine) for replica in follower.runs("kinds")}


def stored(directory):
    """Return the key groups of the replicas that are on the disk."""
    return sorted(path.name for path in directory.glob("state-server-*/*/*/*"))


def test_a_server_uses_the_backend_of_the_job(directory, local):
    found = {}
    for name in ("filesystem", "rocksdb", "hashmap", "memory"):
        with every_kind(backend=name) as job:
            run(job)
            follower = Follower(job.storage, make_replica=local().replica)
            follower.poll()
            found[name] = engines(follower)
    assert found == {
        "filesystem": {LmdbEngine},
        "rocksdb": {RocksDbEngine},
        "hashmap": {MemoryEngine},
        "memory": {MemoryEngine},
    }


def test_a_server_uses_the_backend_that_is_chosen_for_it(job, local):
    run(job)
    for chosen, expected in (("rocksdb", RocksDbEngine), ("memory", MemoryEngine), ("hashmap", MemoryEngine)):
        follower = Follower(job.storage, make_replica=local(**{CHOSEN: chosen}).replica)
        follower.poll()
        assert engines(follower) == {expected}


def test_the_state_of_a_job_of_an_earlier_version_is_kept_in_memory(job, local):
    run(job)
    manifest, _ = latest(job.storage)
    assert manifest.backend == "filesystem"
    encoded = msgspec.msgpack.encode(manifest)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.msgpack.decode(encoded)[:-1]), type=Manifest) == (
        msgspec.structs.replace(manifest, backend="")
    )
    assert isinstance(local().replica("", job.storage, "kinds", range(2))._engine, MemoryEngine)


def test_a_class_named_by_a_checkpoint_is_used_only_if_the_settings_name_it_too(job, local, caplog):
    named = f"{__name__}:OwnFactory"
    replica = local().replica(named, job.storage, "kinds", range(2))
    assert isinstance(replica._engine, LmdbEngine)
    assert f"uses the state backend '{named}'; this state server uses 'filesystem' instead" in caplog.text
    assert f"because {CHOSEN} does not name it" in caplog.text
    opened = []
    for settings in ({"state.backend": named}, {CHOSEN: named}):
        replicas = local(**settings)
        replicas.replica(named, job.storage, "kinds", range(2))
        opened += [type(factory) for factory in replicas._used.values()]
    assert opened == [OwnFactory, OwnFactory]


def test_a_class_of_the_program_that_the_server_cannot_import_is_replaced(job, local, caplog):
    replicas = local(**{"state.backend": "not.there:Factory"})
    replica = replicas.replica("not.there:Factory", job.storage, "kinds", range(2))
    assert isinstance(replica._engine, LmdbEngine)
    assert "'not.there:Factory', which cannot be imported" in caplog.text


def test_a_chosen_class_that_cannot_be_imported_is_refused(local):
    with pytest.raises(BadSetting, match=f"{CHOSEN} is 'not.there:Factory', which cannot be imported"):
        local(**{CHOSEN: "not.there:Factory"})


def test_the_directory_belongs_to_one_server_and_goes_with_it(backend, directory, job, local):
    run(job)
    first, second = local(**{CHOSEN: backend}), local(**{CHOSEN: backend})
    followers = [Follower(job.storage, make_replica=each.replica) for each in (first, second)]
    for follower in followers:
        follower.poll()
    roots = sorted(directory.iterdir())
    assert [path.stat().st_mode & 0o777 for path in roots] == [0o700, 0o700]
    assert len(stored(directory)) == 32
    first.close()
    assert len(list(directory.iterdir())) == 1
    assert value(followers[1], "k0") == value(followers[1], "k0") != []
    second.close()
    assert list(directory.iterdir()) == []


def test_replicas_are_spread_over_the_local_directories(backend, tmp_path, job, local):
    (tmp_path / "file").touch()
    places = [tmp_path / "one", tmp_path / "two"]
    names = ",".join(map(str, [*places, tmp_path / "file" / "broken"]))
    run(job)
    follower = Follower(job.storage, make_replica=local(**{CHOSEN: backend, "state.backend.local-dir": names}).replica)
    follower.poll()
    assert [len(stored(each)) for each in places] == [8, 8]
    assert all(all_values(follower))


def test_the_files_of_a_block_go_when_it_is_given_up_and_no_read_uses_it(backend, directory, job, local):
    run(job)
    replicas = local(**{CHOSEN: backend})
    follower = Follower(job.storage, make_replica=replicas.replica)
    follower.poll()
    assert len(stored(directory)) == 16
    assert all(all_values(follower))
    assert open_files(directory) == set(stored(directory))
    begun = follower.runs("kinds", [8, 9])
    follower.want(frozenset(range(8)), frozenset(range(8, 16)))
    follower.poll()
    replicas.remove_unused()
    assert [int(name[:5]) for name in stored(directory)] == [*range(0, 20, 2)]
    assert begun[0].between(1, 16, b"\0\x10", b"\0\x11")
    del begun
    gc.collect()
    replicas.remove_unused()
    assert [int(name[:5]) for name in stored(directory)] == [*range(0, 16, 2)]
    assert open_files(directory) <= set(stored(directory))


def open_files(directory):
    """Return the replicas that have open files, of this process."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    targets = [link.readlink() for link in links if link.is_symlink()]
    below = [path.relative_to(directory).parts for path in targets if path.is_relative_to(directory)]
    return {parts[3] for parts in below if len(parts) > 3}


def test_replicas_whose_files_are_lost_are_read_from_the_checkpoints_again(backend, directory, job, local):
    run(job)
    follower = Follower(job.storage, make_replica=local(**{CHOSEN: backend}).replica)
    follower.poll()
    expected = all_values(follower)
    for path in directory.glob("state-server-*/*"):
        # As by a cleaner of temporary files.
        shutil.rmtree(path, ignore_errors=True)
    with pytest.raises(NotServed, match="from the checkpoints again: its files are gone"):
        all_values(follower)
    with pytest.raises(NotServed):
        value(follower, "k0")
    assert follower.poll()
    assert (follower.rebuilt, all_values(follower)) == (2, expected)


def test_a_server_whose_directory_was_removed_creates_another_one(backend, directory, job, local):
    run(job)
    follower = Follower(job.storage, make_replica=local(**{CHOSEN: backend}).replica)
    follower.poll()
    expected = all_values(follower)
    shutil.rmtree(directory)
    with pytest.raises(NotServed):
        all_values(follower)
    follower.poll()
    assert all_values(follower) == expected


def test_a_replica_that_was_lost_while_nothing_read_it_is_noticed_when_it_advances(backend, directory, job, local):
    run(job)
    follower = Follower(job.storage, 1, make_replica=local(**{CHOSEN: backend}).replica)
    follower.poll()
    for path in directory.glob("state-server-*/*"):
        shutil.rmtree(path, ignore_errors=True)
    for number in range(10):
        run(job, add=number)
        follower.poll()
    follower.poll()
    assert follower.rebuilt == 2
    assert all_values(follower)[0] == value(follower, "k0") != []


def test_a_directory_that_cannot_be_created_is_an_error_that_names_the_settings(backend, tmp_path, job, local):
    (tmp_path / "file").touch()
    run(job)
    local_dir = str(tmp_path / "file" / "below")
    replicas = local(**{CHOSEN: backend, "state.backend.local-dir": local_dir})
    follower = Follower(job.storage, make_replica=replicas.replica)
    with pytest.raises(NoLocalReplicas, match=f"{local_dir}.*state.backend.local-dir.*{CHOSEN}"):
        follower.poll()
    (tmp_path / "file").unlink()
    follower.poll()
    assert all(all_values(follower))


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_local_replicas import fill_the_disk
fill_the_disk(*sys.argv[1:3])
"""


def fill_the_disk(backend, directory):
    """Follow a job while files cannot grow, as on a full disk, and after that."""
    with every_kind() as job:
        run(job)
        replicas = LocalReplicas({CHOSEN: backend, "state.backend.local-dir": directory})
        follower = Follower(job.storage, 1, make_replica=replicas.replica)
        follower.poll()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        refused = []
        for number in range(1, _COLLECTED + 4):
            run(job, add=number)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
            try:
                follower.poll()
            except EngineError as error:
                refused.append(str(error))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert follower.newest == number + 1
            assert all_values(follower) == expected(job)
        assert refused
        assert all("state.backend.local-dir" in text for text in refused)
        run(job, add=_COLLECTED + 4)
        follower.poll()
        assert follower.rebuilt == 1
        assert all(len(replica._layers) < _COLLECTED for replica in follower.runs("kinds"))
        assert all_values(follower) == expected(job)
        replicas.close()


def expected(job):
    memory = Follower(job.storage)
    memory.poll()
    found = all_values(memory)
    memory.close()
    return found


@pytest.mark.parametrize("backend", ["filesystem", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_a_full_disk_is_an_error_that_names_the_setting_and_loses_nothing(backend, directory):
    # In another process: the limit is for a whole process.
    command = [sys.executable, "-c", FULL, backend, str(directory), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_server_that_cannot_write_says_so_and_serves_the_job_once_it_can(make_job, tmp_path, caplog):
    served = make_job("served")
    served.run(*((key, number) for number, key in enumerate(KEYS, 1)))
    (tmp_path / "file").touch()
    replicas = LocalReplicas({"state.backend.local-dir": str(tmp_path / "file" / "below")})
    followed = FollowedJob("id", "name", Directory(served.root), 10, 0.01, replicas=replicas)
    followed.start()
    try:
        until(lambda: "The replicas of job 'name' cannot be advanced" in caplog.text)
        with pytest.raises(NotServed, match=r"'name' cannot be served yet.*set state\.backend\.local-dir"):
            followed.reading()
        (tmp_path / "file").unlink()
        until(lambda: followed.description().newest)
        assert value(followed.reading()[0], "k0")
    finally:
        followed.close()
        replicas.close()


@pytest.mark.slow
def test_the_directory_of_a_killed_server_is_removed_by_the_next_one(make_job, settings, client, backend, directory):
    served = make_job("served")
    served.run(*((key, number) for number, key in enumerate(KEYS, 1)))
    settings |= {CHOSEN: backend, "queryable-state.linger": "0 ms"}
    server = LaunchedServer(Launch(job_id="the-id", job_name="job", root=served.root.where, settings=settings))
    try:
        await_value(client, "the-id", 1)
        killed = list(directory.iterdir())
        assert len(killed) == 1
        first = server.process
        first.kill()
        first.wait()
        assert killed[0].exists()
        served.run(("k0", 2))
        # The launcher starts another one.
        await_value(client, "the-id", 2)
        now = list(directory.iterdir())
        assert len(now) == 1
        assert now != killed
        server.end()
        assert server.process.wait(30) == 0
        assert list(directory.iterdir()) == []
    finally:
        server.kill()


def await_value(client, job, expected):
    """Return once a server answers with a value."""

    def answers():
        try:
            return client.get(job, "the value", "k0") == expected
        except (Unreachable, UnknownJob, NotServed):
            return False

    until(answers)


MEASURED = """
import gc, sys
from pathlib import Path
from penstock.query.follower import Follower
from penstock.query.local_replicas import LocalReplicas
from penstock.query.reads import Reads
from penstock.state.local_storage import LocalStorage

def private():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024

root, backend, directory = sys.argv[1:]
replicas = LocalReplicas({"queryable-state.server.state-backend": backend, "state.backend.local-dir": directory})
follower = Follower(LocalStorage(root), make_replica=replicas.replica)
before = private()
assert follower.poll()
_, batches = Reads(follower).scan(follower.at(), "payloads")
assert sum(batch.num_rows for batch in batches) == 300_000
gc.collect()
print(private() - before)
replicas.close()
"""


@pytest.mark.long
def test_the_memory_of_a_server_does_not_grow_with_state_on_disk(tmp_path):
    env = environment()
    numbers = env.from_collection([], type_info=Types.LONG()).key_by(lambda number: number, Types.LONG())
    numbers.process(Payloads()).uid("payloads")
    storage = LocalStorage(tmp_path / "job")
    with JobHarness(env, backend="filesystem", storage=storage, parallelism=1) as job:
        for start in range(0, 300_000, 50_000):
            job.push(*range(start, start + 50_000)).epoch()
        used = {}
        for backend in ("memory", "filesystem", "rocksdb"):
            command = [sys.executable, "-c", MEASURED, str(tmp_path / "job"), backend, str(tmp_path / "replicas")]
            used[backend] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    # 147, 69 and 66 MiB; with three times the keys 373, 85 and 95.
    assert used["memory"] > 80
    assert used["filesystem"] < 0.75 * used["memory"]
    assert used["rocksdb"] < 0.75 * used["memory"]
