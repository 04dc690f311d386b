"""Spilled changes are read as if in memory, written as one delta, and disappear with the process."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.engines.memory import MemoryEngine
from penstock.state.files import GroupChanges, merge_changes, prefix_end
from penstock.state.spill import CannotSpill, Run

GROUP = 3
# Short keys of few bytes, so that keys, prefixes and clears collide; one exceeds LMDB's maximum key length.
rests = st.binary(max_size=3).map(lambda rest: bytes(each % 3 for each in rest)) | st.just(b"x" * 600)
keys = rests.map(lambda rest: b"\0\3" + rest)
values = st.none() | st.binary(max_size=3)


@st.composite
def layers(draw):
    entries = draw(st.dictionaries(keys, values, max_size=6))
    return GroupChanges(GROUP, sorted(draw(st.sets(keys, max_size=2))), sorted(entries.items()))


@settings(deadline=None)
@given(below=layers(), spills=st.lists(layers(), max_size=5), bounds=st.tuples(keys, keys))
def test_reads_return_the_same_as_a_replica_with_all_changes_applied(below, spills, bounds):
    committed, oracle = MemoryEngine(), MemoryEngine()
    committed.apply(None, [below], b"1")
    oracle.apply(None, [below, *spills], b"1")
    run = Run()
    try:
        for changes in spills:
            run.put([changes])
        with committed.reader() as replica, oracle.reader() as expected:
            reader = run.above(replica)
            asked = {key for layer in [below, *spills] for key, _ in layer.entries} | set(bounds)
            for key in asked:
                assert reader.get(key) == expected.get(key)
                assert list(reader.scan(key)) == list(expected.scan(key))
            start, end = sorted(bounds)
            assert list(reader.between(start, end)) == list(expected.between(start, end))
    finally:
        run.close()


@settings(deadline=None)
@given(spills=st.lists(layers(), min_size=1, max_size=5))
def test_the_delta_has_the_same_effect_as_all_spills_in_order(spills):
    run = Run()
    try:
        for changes in spills:
            run.put([changes])
        merged = merge_changes(spills)
        given_back = list(run.changes())
    finally:
        run.close()
    assert given_back == ([merged] if merged.cleared or merged.entries else [])


def test_changes_are_returned_one_key_group_at_a_time_in_order():
    run = Run()
    run.put([GroupChanges(group, [], [(group.to_bytes(2, "big") + b"k", b"v")]) for group in (0, 7, 300)])
    run.put([GroupChanges(5, [b"\0\5x"], [])])
    assert [change.group for change in run.changes()] == [0, 5, 7, 300]
    run.close()


def test_the_error_for_a_full_disk_names_the_setting():
    run = Run()
    run._db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(CannotSpill, match=r"penstock\.state\.overlay\.memory.*full"):
        run.put([GroupChanges(0, [], [(b"\0\0%6d" % number, b"x" * 1000) for number in range(1000)])])
    run.close()


SPILLING = """
import sys, time
from penstock.state.files import GroupChanges
from penstock.state.spill import Run
run = Run()
run.put([GroupChanges(0, [], [(b"\\0\\0%9d" % number, b"x" * 1000) for number in range(100_000)])])
print("spilled", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_no_spill_file(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "SQLITE_TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-c", SPILLING], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"spilled\n"
        held = [os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")]
        assert any(link.startswith(str(tmp_path)) for link in held)
        assert os.listdir(tmp_path) == []
        child.send_signal(signal.SIGKILL)
    assert os.listdir(tmp_path) == []


def test_a_prefix_at_the_end_of_the_key_space_has_no_upper_bound():
    assert prefix_end(b"\xff") is None
    run = Run()
    run.put([GroupChanges(0xFFFF, [b"\xff\xff"], [(b"\xff\xff1", b"v")])])
    assert list(run.above(None).scan(b"\xff")) == [(b"\xff\xff1", b"v")]
    assert run.covers(b"\xff\xff2")
    run.close()
