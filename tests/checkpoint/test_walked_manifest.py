"""The deltas that a walk finds in a manifest, by key groups."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.walked_manifest import WalkedManifest
from penstock.runtime.report import DeltaHandle
from penstock.state.blocks import Blocks
from penstock.state.key_groups import range_of_subtask

BLOCKS = Blocks(max_parallelism=64, count=16)


def walked(deltas):
    """Return the manifest of an operator whose tasks changed these lists of blocks."""
    handles = [
        DeltaHandle(name=f"deltas/{number}", size=1, entries=1, blocks=blocks) for number, blocks in enumerate(deltas)
    ]
    operators = {"count": SimpleNamespace(deltas=handles), "idle": SimpleNamespace(deltas=[])}
    manifest = SimpleNamespace(
        id=3, lineage="lineage", parent=b"", operators=operators, blocks={"count": BLOCKS, "idle": BLOCKS}
    )
    return WalkedManifest(manifest), handles


def by_definition(handles, changed):
    touched = {block for groups in changed for block in BLOCKS.touching(groups)}
    return [handle for handle in handles if touched & set(handle.blocks)]


ranges = st.tuples(st.integers(0, 64), st.integers(0, 64)).map(lambda ends: range(min(ends), max(ends)))


@given(st.lists(st.lists(st.integers(0, 15), max_size=4), max_size=12), st.lists(ranges, max_size=3))
def test_a_walk_finds_every_delta_of_the_key_groups_in_any_order(deltas, changed):
    manifest, handles = walked(deltas)
    changed = [groups for groups in changed if groups]
    assert manifest.deltas("count", changed) == by_definition(handles, changed)
    assert manifest.count == len(deltas)


@given(st.integers(1, 40), st.data())
def test_a_walk_finds_every_delta_of_subtasks_in_order(parallelism, data):
    deltas = []
    for subtask in range(parallelism):
        groups = data.draw(st.sets(st.sampled_from(range_of_subtask(subtask, parallelism, 64)), min_size=1))
        deltas.append(sorted(set(map(BLOCKS.of, groups))))
    manifest, handles = walked(deltas)
    for block in BLOCKS.numbers:
        changed = [BLOCKS.groups(block)]
        assert manifest.deltas("count", changed) == by_definition(handles, changed)


def test_an_operator_without_changes_has_no_deltas():
    manifest, _ = walked([[1], [2]])
    assert manifest.deltas("idle", [range(64)]) == manifest.deltas("unknown", [range(64)]) == []
