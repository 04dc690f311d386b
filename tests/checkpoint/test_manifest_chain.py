"""The path of a replica to the wanted version: along the chain, or from a base."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint import manifest_chain
from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import all_blocks, merge_block
from penstock.checkpoint.manifest import (
    FORMAT,
    BaseHandle,
    Manifest,
    OperatorSnapshot,
    Version,
    encode_version,
    publish,
)
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.runtime.report import DeltaHandle
from penstock.state.access import StateAccess
from penstock.state.blocks import Blocks, blocks_for
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.memory import MemoryEngine
from penstock.state.files import GroupChanges
from penstock.state.replica import Replicas, StaleAttempt
from penstock.state.storage import MissingObject

UID = "count"
GROUPS = 4
"""Max parallelism; there are as many blocks, with one key group each."""
BLOCKS = blocks_for(1, GROUPS)


class Chain:
    """Checkpoints published one after another."""

    def __init__(self, storage=None, token="driver"):
        self.storage = storage or DriverStorage()
        self.token = token
        self.lineage = "lineage"
        self.versions = []
        self.bases = {}
        self.blocks = BLOCKS

    def publish(self, *deltas, uid=UID):
        manifest = Manifest(
            format=FORMAT,
            lineage=self.lineage,
            id=len(self.versions) + 1,
            batch=None,
            parent=self.versions[-1].digest if self.versions else b"",
            token=self.token,
            timestamp=0,
            ended=False,
            operators={
                uid: OperatorSnapshot(
                    name="count", parallelism=1, max_parallelism=GROUPS, states={"n": "value long"}, deltas=list(deltas)
                )
            },
            committables=[],
            records={},
            spark_log={},
            log_index={},
            bases={UID: self.bases},
            since_base={},
            blocks={UID: self.blocks, uid: self.blocks},
        )
        self.versions.append(publish(self.storage, manifest))
        return self.versions[-1]

    def history(self, version=None):
        return ManifestChain(self.storage, version or self.versions[-1])

    def steps(self, position=None, block=0, **options):
        steps = self.history(**options).steps(
            UID, BLOCKS.groups(block), None if position is None else encode_version(position)
        )
        return None if steps is None else [bytes(step.data) for step in steps]


def delta(content, *blocks):
    return DeltaHandle(name="deltas/x", size=len(content), entries=1, blocks=list(blocks) or [0], inline=content)


@pytest.fixture
def chain():
    """Five checkpoints with a delta each."""
    chain = Chain()
    for content in (b"one", b"two", b"three", b"four", b"five"):
        chain.publish(delta(content))
    return chain


class TestAlongTheChain:
    def test_a_new_replica_applies_every_delta_oldest_first(self, chain):
        assert chain.steps() == [b"one", b"two", b"three", b"four", b"five"]

    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    def test_a_replica_on_the_chain_applies_the_missing_deltas(self, chain, number):
        assert chain.steps(chain.versions[number - 1]) == [b"one", b"two", b"three", b"four", b"five"][number:]

    def test_a_replica_stops_at_the_wanted_version(self, chain):
        assert chain.steps(chain.versions[0], version=chain.versions[2]) == [b"two", b"three"]

    def test_deltas_of_several_subtasks_are_applied_in_order(self):
        chain = Chain()
        chain.publish(delta(b"first"), delta(b"second"))
        assert chain.steps() == [b"first", b"second"]

    def test_deltas_of_other_blocks_are_skipped(self):
        chain = Chain()
        chain.publish(delta(b"zero", 0), delta(b"both", 0, 1))
        chain.publish(delta(b"one", 1))
        assert chain.steps(block=0) == [b"zero", b"both"]
        assert chain.steps(block=1) == [b"both", b"one"]
        assert chain.steps(block=2) == []

    def test_deltas_of_other_operators_are_skipped(self):
        chain = Chain()
        chain.publish(delta(b"other operator"), uid="another")
        chain.publish(delta(b"mine"))
        assert chain.steps() == [b"mine"]

    def test_a_delta_in_a_file_is_read_from_there(self):
        chain = Chain()
        chain.storage.write("deltas/1/abc", b"large")
        chain.publish(DeltaHandle(name="deltas/1/abc", size=5, entries=1, blocks=[0], inline=None))
        assert chain.steps() == [b"large"]
        chain.storage.delete("deltas/1/abc")
        with pytest.raises(MissingObject, match="deltas/1/abc"):
            chain.steps()

    def test_the_wanted_position_is_the_encoded_version(self, chain):
        assert chain.history().wanted == encode_version(chain.versions[-1])
        assert ManifestChain(chain.storage, None).wanted is None

    def test_a_worker_that_continues_reads_only_the_new_manifest(self, chain, monkeypatch):
        monkeypatch.setattr(manifest_chain, "_manifests", type(manifest_chain._manifests)())
        chain.steps()
        read = []
        monkeypatch.setattr(
            chain.storage, "read", lambda name: read.append(name) or DriverStorage.read(chain.storage, name)
        )
        chain.publish(delta(b"six"))
        assert chain.steps(chain.versions[4]) == [b"six"]
        assert read == ["manifests/000000000006"]


class TestCachedManifests:
    @pytest.fixture
    def long(self, monkeypatch):
        """Twenty checkpoints with two deltas each, and an empty cache of eleven deltas."""
        monkeypatch.setattr(manifest_chain, "_manifests", {})
        monkeypatch.setattr(manifest_chain, "_CACHED_DELTAS", 11)
        chain = Chain()
        for number in range(20):
            chain.publish(delta(b"%d" % number), delta(b"other", 1))
        return chain

    def test_a_process_caches_the_newest_manifests_up_to_a_number_of_deltas(self, long):
        assert long.steps() == [b"%d" % number for number in range(20)]
        assert sorted(each.id for each in manifest_chain._manifests.values()) == [16, 17, 18, 19, 20]

    def test_a_cached_manifest_holds_only_what_a_walk_needs(self, long):
        long.bases = {0: BaseHandle(id=3, name="bases/3", size=10, end=1)}
        long.publish(delta(b"last"))
        long.storage.write("bases/3", b"base")
        assert long.steps() == [b"base", *(b"%d" % number for number in range(3, 20)), b"last"]
        assert not any(hasattr(each, "bases") for each in manifest_chain._manifests.values())
        assert long.steps(long.versions[18]) == [b"19", b"last"]

    def test_manifests_of_a_lineage_that_has_ended_make_room(self, long):
        long.steps()
        other = Chain(token="another run")
        other.lineage = "other"
        for content in (b"one", b"two"):
            other.publish(delta(content))
        other.steps()
        assert {each.lineage for each in manifest_chain._manifests.values()} == {"lineage", "other"}
        assert sorted(each.id for each in manifest_chain._manifests.values()) == [1, 2, 17, 18, 19, 20]


class TestOffTheChain:
    def test_a_replica_of_another_history_is_rebuilt(self, chain):
        other = Chain(token="another driver")
        for _ in range(3):
            other.publish(delta(b"elsewhere"))
        assert chain.steps(other.versions[2]) is None

    def test_a_replica_that_shares_only_the_beginning_is_rebuilt(self, chain):
        fork = Chain(DriverStorage(), token="driver")
        fork.publish(delta(b"one"))
        assert fork.versions[0] == chain.versions[0]
        fork.publish(delta(b"another two"))
        assert chain.steps(fork.versions[0]) == [b"two", b"three", b"four", b"five"]
        assert chain.steps(fork.versions[1]) is None

    def test_a_replica_at_the_wanted_number_with_another_hash_is_rebuilt(self, chain):
        assert chain.steps(Version(id=5, digest=b"?" * 16)) is None

    def test_a_replica_ahead_of_the_task_makes_the_attempt_stale(self, chain):
        message = "replica of operator 'count' is at checkpoint 5, but this task needs checkpoint 3: a newer attempt"
        with pytest.raises(StaleAttempt, match=message):
            chain.steps(chain.versions[4], version=chain.versions[2])


class TestBases:
    @pytest.fixture
    def based(self, chain):
        """Return the same chain with a sixth manifest that announces a base as of checkpoint 4."""
        chain.storage.write("bases/4/abc", b"base of four")
        chain.bases = {
            0: BaseHandle(id=4, name="bases/4/abc", size=12, end=1),
            1: BaseHandle(id=4, name="", size=0, end=2),
        }
        chain.publish(delta(b"six"))
        return chain

    def test_a_new_replica_starts_from_the_base(self, based):
        assert based.steps() == [b"base of four", b"five", b"six"]

    def test_a_replica_older_than_the_base_is_rebuilt(self, based):
        assert based.steps(based.versions[2]) is None

    def test_a_replica_at_or_after_the_base_applies_deltas(self, based):
        assert based.steps(based.versions[3]) == [b"five", b"six"]
        assert based.steps(based.versions[4]) == [b"six"]

    def test_the_base_of_an_empty_block_has_no_steps(self, based):
        assert based.steps(block=1) == []

    def test_manifests_before_a_base_are_not_needed(self, based):
        manifest_chain._manifests.clear()
        for number in (1, 2, 3, 4):
            based.storage.delete(f"manifests/{number:012d}")
        assert based.steps() == [b"base of four", b"five", b"six"]
        assert based.steps(block=1) == []
        assert based.steps(based.versions[1]) is None

    def test_a_version_from_before_the_base_does_not_use_it(self, based):
        assert based.steps(version=based.versions[4]) == [b"one", b"two", b"three", b"four", b"five"]


def keys_of(group):
    return [bytes([0, group]) + name for name in (b"a", b"b", b"c")]


changes_of_an_epoch = st.lists(
    st.integers(0, GROUPS - 1).flatmap(
        lambda group: st.builds(
            lambda cleared, entries: GroupChanges(
                group, [bytes([0, group])] if cleared else [], sorted(entries.items())
            ),
            st.booleans(),
            st.dictionaries(st.sampled_from(keys_of(group)), st.none() | st.binary(max_size=2)),
        )
    ),
    max_size=3,
    unique_by=lambda change: change.group,
)


def apply_to(model, changes):
    result = dict(model)
    for change in changes:
        for prefix in change.cleared:
            result = {key: value for key, value in result.items() if not key.startswith(prefix)}
        for key, value in change.entries:
            result.pop(key, None)
            if value is not None:
                result[key] = value
    return result


@given(st.lists(st.tuples(changes_of_an_epoch, st.booleans()), min_size=1, max_size=8), st.data())
def test_every_path_to_a_version_leads_to_the_same_state(epochs, data):
    """Compare replicas that jump between versions, and bases merged at any of them, with a dict."""
    chain = Chain()
    models = [{}]
    announced = {}
    for number, (changes, merges) in enumerate(epochs, 1):
        changes = sorted(changes, key=lambda change: change.group)
        written = StateAccess(None, None, None, 0).write_delta(number, changes, BLOCKS)
        handle = DeltaHandle(
            name=written.name, size=written.size, entries=written.entries, blocks=written.blocks, inline=written.inline
        )
        chain.bases = announced
        version = chain.publish(handle)
        models.append(apply_to(models[-1], changes))
        if merges:
            announced = {
                block.groups.start: merge_block(chain.storage, version, block) for block in all_blocks(UID, BLOCKS)
            }
    engines = {}
    versions = data.draw(st.lists(st.integers(1, len(epochs)), min_size=1, max_size=4).map(sorted))
    for number in versions:
        history = chain.history(chain.versions[number - 1])
        replicas = Replicas(UID, BLOCKS, history, lambda uid, groups: engines.setdefault(groups, MemoryEngine()))
        found = {}
        for group in range(GROUPS):
            found.update(replicas.reader(group).scan(b""))
        replicas.close()
        assert found == models[number]


any_blocks = st.integers(1, GROUPS).map(lambda count: Blocks(max_parallelism=GROUPS, count=count))


@given(
    st.lists(st.tuples(changes_of_an_epoch, any_blocks, st.sets(st.integers(0, GROUPS - 1))), min_size=1, max_size=8),
    st.data(),
)
def test_every_path_leads_to_the_same_state_if_blocks_change_with_every_epoch(epochs, data):
    """Each epoch has other blocks, of which some are merged; so has each process that reads."""
    chain = Chain()
    models = [{}]
    for number, (changes, blocks, merged) in enumerate(epochs, 1):
        changes = sorted(changes, key=lambda change: change.group)
        written = StateAccess(None, None, None, 0).write_delta(number, changes, blocks)
        handle = DeltaHandle(
            name=written.name, size=written.size, entries=written.entries, blocks=written.blocks, inline=written.inline
        )
        chain.blocks = blocks
        version = chain.publish(handle)
        models.append(apply_to(models[-1], changes))
        newer = {
            block.groups.start: merge_block(chain.storage, version, block)
            for block in all_blocks(UID, blocks)
            if block.number in merged
        }
        chain.bases = BaseRuns(chain.bases).replaced(newer)
    engines = {}
    versions = data.draw(st.lists(st.integers(1, len(epochs)), min_size=1, max_size=4).map(sorted))
    for number in versions:
        history = chain.history(chain.versions[number - 1])
        blocks = data.draw(any_blocks)
        replicas = Replicas(UID, blocks, history, lambda uid, groups: engines.setdefault(groups, MemoryEngine()))
        found = {}
        for group in range(GROUPS):
            found.update(replicas.reader(group).scan(b""))
        replicas.close()
        assert found == models[number]


class TestRemoteStorage:
    class Far(DriverStorage):
        """Each read waits for three others."""

        far = True

        def __init__(self):
            super().__init__()
            self.together = threading.Barrier(4, timeout=20)

        def view(self, name):
            self.together.wait()
            return super().view(name)

    def test_files_are_fetched_concurrently_and_applied_in_order(self):
        chain = Chain(self.Far())
        for number in range(8):
            chain.storage.write(f"deltas/{number}", b"%d" % number)
            chain.publish(DeltaHandle(name=f"deltas/{number}", size=1, entries=1, blocks=[0]))
        assert chain.steps() == [b"%d" % number for number in range(8)]
