"""Replicas that follow the checkpoints of a job, compared with the job's own committed state at each of them."""

import pytest
from query_jobs import environment, every_kind, new_follower

from penstock.checkpoint.manifest import load, manifest_name
from penstock.checkpoint.pins import Pin, PinLimits, ServerPins
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.driver.epoch_settings import Settings
from penstock.query.division import ALL_BLOCKS
from penstock.query.errors import CheckpointGone, CheckpointNotReached, NotServed
from penstock.query.reads import Reads
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.entries import entry_prefix, state_id
from penstock.state.key_groups import key_group_of
from penstock.state.keys import encode_key
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import serializer_for
from penstock.tables.checkpoint import Checkpoint
from penstock.testing import JobHarness

pytestmark = pytest.mark.usefixtures("server_backend")

GROUPS = 32
decode = serializer_for(Types.LONG()).decode


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def value(follower, key, number=None):
    """Return the value state of a key at a checkpoint."""
    number = follower.at(number).version.id
    data = encode_key(key)
    group = key_group_of(data, GROUPS)
    found = follower.replica("kinds", group, GROUPS).get(number, group, entry_prefix(group, state_id("value"), data))
    return None if found is None else decode(found)


def values(follower, number=None):
    """Return all keys with their value state, by a scan."""
    number = follower.at(number).version.id
    found = {}
    for group in range(GROUPS):
        prefix = entry_prefix(group, state_id("value"), b"")[:-4]
        for key, data in follower.replica("kinds", group, GROUPS).between(number, group, prefix, prefix + b"\xff"):
            found[bytes(key[len(prefix) + 4 :])] = decode(data)
    return found


def encoded(state):
    return {encode_key(key): value for key, value in state.items()}


def test_each_retained_checkpoint_shows_what_the_job_committed_in_it():
    with every_kind() as job:
        follower = new_follower(job.storage, retained=5)
        oracle = {}
        for epoch in range(30):
            job.push(*((f"k{(epoch * 7 + i) % 23}", epoch * 10 + i if i else -1) for i in range(8))).epoch()
            oracle[job.checkpoint] = job.states("value")
            assert follower.poll()
            assert (follower.oldest, follower.newest) == (max(1, epoch - 3), epoch + 1)
            for number in range(follower.oldest, follower.newest + 1):
                assert values(follower, number) == encoded(oracle[number])
                for key in map("k{}".format, range(23)):
                    assert value(follower, key, number) == oracle[number].get(key)
        assert follower.rebuilt == 1
        with pytest.raises(CheckpointGone, match="Checkpoint 25 is not readable any more; the oldest is 26"):
            value(follower, "k1", 25)


def test_a_follower_that_fell_behind_catches_up_through_every_checkpoint():
    with every_kind() as job:
        follower = new_follower(job.storage, retained=50)
        oracle = {}
        job.push(("a", 1)).epoch()
        follower.poll()
        for epoch in range(12):
            job.push(("a", epoch), ("b", epoch)).epoch()
            oracle[job.checkpoint] = encoded(job.states("value"))
        follower.poll()
        assert follower.rebuilt == 1
        assert {number: values(follower, number) for number in oracle} == oracle


def test_a_follower_is_rebuilt_if_the_checkpoints_in_between_are_gone():
    clock = Clock()
    with every_kind(settings=Settings(base_bytes=1, asynchronous=False)) as job:
        follower = new_follower(job.storage, clock=clock)
        job.push(("k0", 1)).epoch()
        follower.poll()
        for name in job.storage.list("pins/"):
            job.storage.delete(name)
        for epoch in range(120):
            job.push((f"k{epoch % 3}", epoch)).epoch()
        assert not job.storage.exists(manifest_name(2))
        clock.now += 10
        follower.poll()
        assert follower.rebuilt == 2
        assert follower.oldest == follower.newest == job.checkpoint
        assert values(follower) == encoded(job.states("value"))


def test_a_pin_keeps_the_checkpoints_after_it_for_a_follower_that_fell_behind():
    clock = Clock()
    with every_kind(settings=Settings(base_bytes=1, asynchronous=False)) as job:
        follower = new_follower(job.storage, clock=clock)
        job.push(("a", 1)).epoch()
        follower.poll()
        for epoch in range(120):
            job.push((f"k{epoch % 3}", epoch)).epoch()
        clock.now += 10
        follower.poll()
        assert follower.rebuilt == 1
        assert values(follower) == encoded(job.states("value"))


def test_the_job_ignores_and_removes_a_pin_that_its_server_does_not_renew(tmp_path):
    storage, clock = LocalStorage(tmp_path), Clock()
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        last, _ = load(job.storage, 1)
        pins = ServerPins(storage, PinLimits(60_000, 1000), clock)
        pin = Pin(storage, "ab")
        assert pin.move(1)
        assert pins.numbers(last) == [1]
        clock.now = 59.0
        pin.move(1)
        assert pins.numbers(last) == [1]
        clock.now = 119.0
        assert pins.numbers(last) == [1]
        clock.now = 119.1
        assert pins.numbers(last) == []
        assert storage.list("pins/") == []


def test_the_job_ignores_pins_that_are_too_far_behind_and_files_that_are_no_pins(tmp_path):
    storage = LocalStorage(tmp_path)
    with every_kind() as job:
        for epoch in range(12):
            job.push(("a", epoch)).epoch()
        last, _ = load(job.storage, 12)
        Pin(storage, "aa").move(2)
        Pin(storage, "bb").move(1)
        Pin(storage, "cc").move(13)
        storage.write("pins/README", b"")
        assert ServerPins(storage, PinLimits(60_000, 10)).numbers(last) == [2]
        assert storage.list("pins/") == ["pins/README", "pins/aa-2-1", "pins/cc-13-1"]


def test_a_pin_that_comes_too_late_does_not_stop_the_removal_of_files(caplog):
    with every_kind(settings=Settings(base_bytes=1, asynchronous=False)) as job:
        for epoch in range(100):
            job.push((f"k{epoch % 3}", epoch)).epoch()
        there = {int(name.rsplit("/", 1)[1]) for name in job.storage.list("manifests/")}
        late = min(there - {each.manifest.id for each in Checkpoint.of(job.storage)})
        Pin(job.storage, "aa").move(late)
        for epoch in range(100):
            job.push((f"k{epoch % 3}", epoch)).epoch()
        assert not job.storage.exists(manifest_name(late))
        assert "removing old files" not in caplog.text


def test_a_manifest_that_a_former_driver_publishes_again_is_never_read(tmp_path):
    with every_kind(settings=Settings(base_bytes=1, asynchronous=False)) as job:
        job.push(("a", 1)).epoch()
        first = job.storage.read(manifest_name(1))
        for epoch in range(100):
            job.push(("a", epoch)).epoch()
        assert not job.storage.exists(manifest_name(1))
        clock = Clock()
        follower = new_follower(job.storage, clock=clock)
        follower.poll()
        # The number is free again, and a driver that slept takes it.
        job.storage.publish(manifest_name(1), first)
        clock.now += 10
        assert not follower.poll()
        job.push(("a", 7)).epoch()
        follower.poll()
        assert value(follower, "a") == 7
        for name in job.storage.list("manifests/"):
            if name != manifest_name(1):
                job.storage.delete(name)
        clock.now += 10
        assert not follower.poll()
        assert value(follower, "a") == 7


def test_the_first_manifest_of_a_removed_lineage_is_not_taken_for_a_checkpoint():
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        job.storage.delete("begun")
        follower = new_follower(job.storage)
        assert not follower.poll()
        with pytest.raises(NotServed, match="no completed checkpoint"):
            follower.at()


def test_an_epoch_that_crashes_before_its_manifest_is_not_visible():
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        follower = new_follower(job.storage)
        follower.poll()
        job.crash_at("driver.collected")
        job.push(("a", 2)).epoch()
        assert not follower.poll()
        assert value(follower, "a") == 1
        job.epoch()
        follower.poll()
        assert value(follower, "a") == 2


def test_rescales_and_restarts_at_another_parallelism_change_nothing_for_a_follower():
    with every_kind(parallelism=1) as job:
        follower = new_follower(job.storage)
        for epoch, parallelism in enumerate([3, 16, 5, 2]):
            job.push(*((f"k{i}", epoch + i) for i in range(50))).epoch()
            job.rescale(parallelism)
            job.push(*((f"k{i}", 100 * epoch + i) for i in range(50))).epoch()
            follower.poll()
            assert values(follower) == encoded(job.states("value"))
        assert follower.rebuilt == 1


def test_a_server_has_the_key_groups_of_its_blocks_only():
    with every_kind() as job:
        job.push(*((f"k{i}", i) for i in range(200))).epoch()
        followers = [new_follower(job.storage, blocks=frozenset(range(first, 16, 3))) for first in range(3)]
        served = []
        for follower in followers:
            follower.poll()
            served.append({group for replica in follower.runs("kinds") for group in replica.groups})
        assert sorted(group for groups in served for group in groups) == list(range(GROUPS))
        missing = next(iter(served[1]))
        with pytest.raises(NotServed, match=f"does not have key group {missing} of operator 'kinds'"):
            followers[0].replica("kinds", missing, GROUPS)


def test_a_held_checkpoint_stays_readable():
    with every_kind() as job:
        follower = new_follower(job.storage, retained=1)
        job.push(("a", 1)).epoch()
        follower.poll()
        with follower.hold(1):
            for number in range(2, 6):
                job.push(("a", number)).epoch()
                follower.poll()
            assert (value(follower, "a", 1), value(follower, "a")) == (1, 5)
        job.push(("a", 6)).epoch()
        follower.poll()
        assert follower.oldest == follower.newest == 6


def test_a_checkpoint_that_is_not_reached_fails_at_once_or_at_the_deadline():
    clock = Clock()
    with every_kind() as job:
        follower = new_follower(job.storage, clock=clock)
        job.push(("a", 1)).epoch()
        follower.poll()
        assert follower.at(at_least=1).version.id == 1
        with pytest.raises(CheckpointNotReached, match="Checkpoint 2 is not complete: the newest one is 1"):
            follower.at(at_least=2)
        with pytest.raises(CheckpointNotReached):
            follower.at(2, deadline=0.0)


def test_a_follower_notices_the_end_of_the_job():
    with every_kind() as job:
        follower = new_follower(job.storage)
        job.push(("a", 1)).end()
        follower.poll()
        assert follower.ended
        assert value(follower, "a") == 1
        with pytest.raises(CheckpointNotReached, match="and the job has ended"):
            follower.at(at_least=100, deadline=1e9)


def test_a_follower_goes_on_when_a_directory_that_was_gone_is_back():
    clock = Clock()
    with every_kind() as job:
        follower = new_follower(job.storage, clock=clock)
        job.push(("a", 1)).epoch()
        follower.poll()
        body = job.storage.read(manifest_name(1))
        job.storage.delete(manifest_name(1))
        clock.now += 2
        assert not follower.poll()
        assert follower.ended
        assert value(follower, "a") == 1
        job.storage.publish(manifest_name(1), body)
        job.push(("a", 2)).epoch()
        follower.poll()
        assert (follower.ended, value(follower, "a")) == (False, 2)


def test_a_pin_moves_on_while_its_server_lives():
    clock = Clock()
    with every_kind() as job:
        follower = new_follower(job.storage, clock=clock)
        job.push(("a", 1)).epoch()
        follower.poll()
        follower.renew_pin()
        assert [name.split("-")[1] for name in job.storage.list("pins/")] == ["1"]
        job.push(("a", 2)).epoch()
        clock.now += 6
        follower.poll()
        follower.renew_pin()
        assert [name.split("-")[1] for name in job.storage.list("pins/")] == ["2"]


def test_a_follower_that_closes_removes_its_pin():
    with every_kind() as job:
        follower = new_follower(job.storage)
        job.push(("a", 1)).epoch()
        follower.poll()
        assert len(job.storage.list("pins/")) == 1
        follower.close()
        assert job.storage.list("pins/") == []


def test_a_block_that_is_added_shows_the_checkpoints_that_are_readable_already():
    with every_kind() as job:
        follower = new_follower(job.storage, retained=5, blocks=frozenset(range(8)))
        oracle = {}
        for epoch in range(9):
            job.push(*((f"k{(epoch * 7 + i) % 40}", epoch * 10 + i if i else -1) for i in range(12))).epoch()
            oracle[job.checkpoint] = encoded(job.states("value"))
            follower.poll()
        follower.want(frozenset(range(16)))
        while len(follower.blocks()) < 16:
            assert follower.poll()
        assert follower.blocks() == dict.fromkeys(range(16), 5)
        assert {number: values(follower, number) for number in range(5, 10)} == {
            number: oracle[number] for number in range(5, 10)
        }
        job.push(("k1", 7), ("k2", -1)).epoch()
        follower.poll()
        assert (follower.rebuilt, values(follower)) == (1, encoded(job.states("value")))


def test_a_block_shows_no_checkpoint_whose_files_are_gone():
    with every_kind(settings=Settings(base_bytes=1, asynchronous=False)) as job:
        follower = new_follower(job.storage, retained=1000, blocks=frozenset(range(8)))
        job.push(("k0", 1)).epoch()
        follower.poll()
        for epoch in range(120):
            job.push((f"k{epoch % 7}", epoch)).epoch()
            follower.poll()
            for name in job.storage.list("pins/"):
                job.storage.delete(name)
        assert not job.storage.exists(manifest_name(2))
        follower.want(frozenset(range(16)))
        while len(follower.blocks()) < 16:
            assert follower.poll()
        blocks = follower.blocks()
        assert {blocks[block] for block in range(8)} == {1}
        oldest = max(blocks.values())
        assert 1 < oldest < job.checkpoint
        assert values(follower) == encoded(job.states("value"))
        with pytest.raises(CheckpointGone):
            values(follower, oldest - 1)


def test_a_block_that_is_given_up_is_not_read_any_more_except_by_a_read_that_has_begun():
    with every_kind() as job:
        follower = new_follower(job.storage)
        job.push(*((f"k{i}", i) for i in range(200))).epoch()
        follower.poll()
        begun = follower.runs("kinds")
        follower.want(frozenset(range(8)), frozenset({8, 9}))
        follower.poll()
        assert sorted(follower.blocks()) == [*range(8), *range(10, 16)]
        with pytest.raises(NotServed, match="does not have block 8"):
            follower.runs("kinds", [7, 8])
        prefix = entry_prefix(16, state_id("value"), b"")[:-4]
        assert len(begun) == 16
        assert begun[8].between(1, 16, prefix, prefix + b"\xff")


def test_an_operator_that_was_not_queryable_for_a_while_is_read_with_what_it_changed_meanwhile():
    class Last(KeyedProcessFunction):
        def __init__(self, shown):
            self.shown = shown

        def open(self, runtime_context):
            last = ValueStateDescriptor("last", Types.LONG())
            if self.shown:
                last.set_queryable("last")
            self.last = runtime_context.get_state(last)

        def process_element(self, record, ctx):
            self.last.update(record[1])

    def version(shown, storage=None):
        keyed = environment().from_collection([]).key_by(lambda record: record[0])
        other = keyed.as_queryable_state("always")
        other.uid("always")
        return JobHarness(keyed.process(Last(shown)).uid("last"), backend="filesystem", storage=storage)

    with version(shown=True) as first:
        follower, growing = new_follower(first.storage, retained=10), new_follower(first.storage, 10, frozenset({0}))
        first.push(("a", 1), ("b", 1)).epoch()
        assert follower.poll()
        assert growing.poll()
        with version(shown=False, storage=first.storage) as second:
            second.push(("a", 2)).epoch()
            assert follower.poll()
            assert growing.poll()
        with version(shown=True, storage=first.storage) as third:
            third.push(("c", 3)).epoch()
            assert follower.poll()
            assert growing.poll()
            growing.want(ALL_BLOCKS)
            while growing.poll():
                pass
            for each in (follower, growing):
                reads, readable = Reads(each), each.at()
                found = {key: decode(reads.get(readable, "last", encode_key(key))[0][1]) for key in "abc"}
                assert found == {"a": 2, "b": 1, "c": 3}
                assert each.rebuilt == 1
