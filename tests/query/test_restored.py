"""A job that was restored from a savepoint can be read as soon as its first manifest is published."""

import msgspec
import pytest
from query_jobs import EveryKind, environment

from penstock.checkpoint.manifest import StateAddress, latest
from penstock.datastream.functions import KeyedProcessFunction
from penstock.query.errors import NotEnabled
from penstock.query.follower import Follower
from penstock.query.reads import Reads
from penstock.query.values import Values
from penstock.savepoint.format import Metadata, load_savepoint, savepoint_storage
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.keys import encode_key
from penstock.state.local_storage import LocalStorage
from penstock.tables import SavepointWriter
from penstock.testing import JobHarness


def read(storage, name, key):
    """Return what a key has, read by a server that sees the job for the first time."""
    follower = Follower(storage)
    assert follower.poll()
    reads = Reads(follower)
    state = reads.state(follower.at(), name).state
    return Values(state.kind, state.type).decode(reads.get(follower.at(), name, encode_key(key)))


@pytest.fixture
def savepoint(tmp_path):
    """A savepoint of a job with queryable state, before its second checkpoint."""
    with JobHarness(every_kind_stream(environment()), backend="filesystem", max_parallelism=32) as job:
        job.push(("ann", 3), ("bob", 1)).epoch()
        return job.savepoint(tmp_path / "savepoints")


def restored(path, folder, enabled=True, program=None):
    env = environment(enabled=enabled)
    stream = (program or every_kind_stream)(env)
    storage = LocalStorage(folder)
    return JobHarness(
        stream, backend="filesystem", parallelism=2, max_parallelism=32, storage=storage, from_savepoint=path
    )


def every_kind_stream(env):
    return env.from_collection([]).uid("orders").key_by(lambda record: record[0]).process(EveryKind()).uid("kinds")


def test_a_restored_job_is_readable_before_its_first_epoch(savepoint, tmp_path):
    with restored(savepoint, tmp_path / "restored") as job:
        manifest, _ = latest(job.storage)
        assert manifest.id == 1
        assert manifest.backend == "filesystem"
        assert read(job.storage, "the value", "ann") == 3
        assert read(job.storage, "the list", "bob") == [1]
        job.push(("ann", 9)).epoch()
        assert read(job.storage, "the value", "ann") == 9


def test_a_restored_job_without_queryable_state_registers_none(savepoint, tmp_path):
    class Plain(KeyedProcessFunction):
        def open(self, runtime_context):
            self.value = runtime_context.get_state(ValueStateDescriptor("value", "long"))

        def process_element(self, record, ctx):
            pass

    def program(env):
        return env.from_collection([]).uid("orders").key_by(lambda record: record[0]).process(Plain()).uid("kinds")

    with restored(savepoint, tmp_path / "restored", enabled=False, program=program) as job:
        manifest, _ = latest(job.storage)
        assert manifest.queryable == {}
        with pytest.raises(NotEnabled):
            read(job.storage, "the value", "ann")


def test_a_savepoint_without_a_registry_still_restores(savepoint, tmp_path):
    """As those of earlier versions."""
    storage = savepoint_storage(savepoint)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(load_savepoint(storage)))
    del fields["queryable"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Metadata).queryable == {}


def test_a_rewritten_savepoint_keeps_the_names_of_the_states_that_it_has(savepoint, tmp_path):
    writer = SavepointWriter.from_existing_savepoint(savepoint)
    renamed = writer.change_operator_identifier("kinds", "sorts").write(tmp_path / "renamed")
    found = load_savepoint(savepoint_storage(renamed)).queryable
    assert found["the map"] == StateAddress(uid="sorts", state="map")
    removed = SavepointWriter.from_existing_savepoint(savepoint).remove_operator("kinds").write(tmp_path / "removed")
    assert load_savepoint(savepoint_storage(removed)).queryable == {}
