"""The file format: files are decoded unchanged, damage is detected, and merging preserves the effect."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import files
from penstock.state.files import (
    CorruptFile,
    GroupChanges,
    GroupTooLarge,
    content_name,
    encode_changes,
    map_file,
    merge_changes,
    prefix_end,
    read_changes,
    write_changes,
)

SMALL = [
    GroupChanges(3, [b"\x00\x03b", b"\x00\x03c"], [(b"\x00\x03a", b"1"), (b"\x00\x03ba", None)]),
    GroupChanges(7, [], [(b"\x00\x07x", b""), (b"\x00\x07y", b"value")]),
    GroupChanges(9, [b"\x00\x09"], []),
]

# Few distinct bytes, so that keys and prefixes collide.
keys = st.binary(max_size=3).map(lambda data: bytes(byte % 2 + 0xFE if byte > 99 else byte % 3 for byte in data))
entries = st.dictionaries(keys, st.none() | st.binary(max_size=3)).map(lambda found: sorted(found.items()))
layers = st.builds(GroupChanges, st.just(5), st.lists(keys, max_size=3), entries)
groups = st.dictionaries(st.integers(0, 32767), layers).map(
    lambda found: [GroupChanges(group, change.cleared, change.entries) for group, change in sorted(found.items())]
)


def applied(state: dict[bytes, bytes], change: GroupChanges) -> dict[bytes, bytes]:
    state = {key: value for key, value in state.items() if not key.startswith(tuple(change.cleared))}
    for key, value in change.entries:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


@settings(deadline=None)
@given(groups)
def test_encoded_changes_are_decoded_unchanged(changes: list[GroupChanges]) -> None:
    read = list(read_changes(encode_changes(changes)))
    expected = [change for change in changes if change.cleared or change.entries]
    assert [(change.group, change.entries) for change in read] == [(c.group, c.entries) for c in expected]
    for ours, theirs in zip(read, expected):
        # Clears are sorted, without those that another covers, and remove the same keys.
        assert set(ours.cleared) <= set(theirs.cleared)
        assert all(prefix.startswith(tuple(ours.cleared)) for prefix in theirs.cleared)


@settings(deadline=None)
@given(groups, st.integers(0, 32767), st.integers(0, 32767))
def test_a_range_of_key_groups_can_be_read(changes: list[GroupChanges], low: int, high: int) -> None:
    data = encode_changes(changes)
    assert list(read_changes(data, range(low, high))) == [
        change for change in read_changes(data) if low <= change.group < high
    ]


def test_reading_a_range_ignores_damage_in_other_groups() -> None:
    data = bytearray(encode_changes(SMALL))
    data[data.index(b"\x00\x07x")] ^= 1
    assert [change.group for change in read_changes(bytes(data), range(7))] == [3]
    with pytest.raises(CorruptFile, match="Key group 7"):
        list(read_changes(bytes(data), range(8)))


def test_bytes_memoryviews_buffers_and_mapped_files_read_alike(tmp_path: Path) -> None:
    data = encode_changes(SMALL)
    (tmp_path / "file").write_bytes(data)
    for source in (data, memoryview(data), pa.py_buffer(data), map_file(tmp_path / "file")):
        assert list(read_changes(source)) == SMALL


def test_a_file_can_be_empty() -> None:
    data = encode_changes([])
    assert list(read_changes(data)) == []
    assert encode_changes([GroupChanges(1, [], [])]) == data


def test_the_same_changes_produce_the_same_bytes_in_every_process() -> None:
    code = (
        "import sys, hashlib; from penstock.state.files import *;"
        f"groups = [GroupChanges(*g) for g in {[(c.group, c.cleared[::-1], c.entries) for c in SMALL]!r}];"
        "print(content_name(encode_changes(iter(groups))))"
    )
    root = Path(files.__file__).parents[2]
    names = {
        subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert names == {content_name(encode_changes(SMALL)) + "\n"}


@settings(deadline=None)
@given(groups)
def test_a_file_written_group_by_group_is_identical(changes: list[GroupChanges]) -> None:
    with tempfile.TemporaryFile() as file:
        written = write_changes(iter(changes), file)
        file.seek(0)
        data = file.read()
    assert data == encode_changes(changes)
    assert written.digest == content_name(data)
    assert written.size == len(data)
    assert written.entries == sum(len(change.entries) for change in changes)
    assert written.groups == [change.group for change in read_changes(data)]


def test_the_name_is_a_hash_of_the_content() -> None:
    assert content_name(b"abc") == hashlib.blake2b(b"abc", digest_size=16).hexdigest()


def test_any_arrow_reader_can_open_it() -> None:
    table = pa.ipc.open_file(encode_changes(SMALL)).read_all()
    assert table.column("op").to_pylist() == [0, 0, 2, 1, 2, 2, 0]
    assert table.column("key").to_pylist()[2:4] == [b"\x00\x03a", b"\x00\x03ba"]
    assert table.column("value").to_pylist() == [None, None, b"1", None, b"", b"value", None]


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_no_flipped_byte_yields_wrong_data(flip: int) -> None:
    data = encode_changes(SMALL)
    harmless = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        try:
            assert list(read_changes(bytes(damaged))) == SMALL, f"at {position}"
            harmless += 1
        except CorruptFile:
            pass
    # Damage can go unnoticed only in the parts for other programs: fields of the schema, the footer.
    assert harmless < len(data) / 2


def test_no_truncated_file_yields_data() -> None:
    data = encode_changes(SMALL)
    for length in range(len(data)):
        with pytest.raises(CorruptFile):
            list(read_changes(data[:length]))


def test_a_block_of_zeros_is_detected() -> None:
    """A crash leaves this if the file's length was synced before its content."""
    data = encode_changes([GroupChanges(1, [], [(b"%05d" % n, b"x" * 50) for n in range(1000)])])
    for start in range(4096, len(data) - 4096, 4096):
        with pytest.raises(CorruptFile):
            list(read_changes(data[:start] + bytes(4096) + data[start + 4096 :]))


@pytest.mark.parametrize("garbage", [b"", b"ARROW1", b"\x00" * 5000, b"ARROW1\0\0" + b"\xff" * 500 + b"ARROW1"])
def test_garbage_is_detected(garbage: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"deltas/7\.arrow"):
        list(read_changes(garbage, name="deltas/7.arrow"))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_detected(garbage: bytes) -> None:
    for data in (garbage, b"ARROW1\0\0" + garbage + b"ARROW1"):
        with pytest.raises(CorruptFile):
            list(read_changes(data))


def test_trailing_data_is_detected() -> None:
    data = encode_changes(SMALL)
    for more in (data, b"ARROW1", bytes(100)):
        with pytest.raises(CorruptFile):
            list(read_changes(data + more))


def test_a_foreign_arrow_file_is_detected() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("op", pa.int8())])):
        pass
    with pytest.raises(CorruptFile, match="index"):
        list(read_changes(sink.getvalue()))


def test_groups_and_keys_must_be_in_ascending_order() -> None:
    with pytest.raises(ValueError, match="Key group 3"):
        encode_changes([SMALL[1], SMALL[0]])
    with pytest.raises(ValueError, match="Key group 3"):
        encode_changes([SMALL[0], SMALL[0]])
    for wrong in ([(b"b", b""), (b"a", b"")], [(b"a", b"1"), (b"a", b"2")]):
        with pytest.raises(ValueError, match="key group 8"):
            encode_changes([GroupChanges(8, [], list(wrong))])


def test_a_group_too_large_for_arrow_raises_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_COLUMN_LIMIT", 1000)
    large = [(b"%03d" % n, b"x" * 10) for n in range(101)]
    with pytest.raises(GroupTooLarge, match="values of key group 4 take 1010 bytes"):
        encode_changes([GroupChanges(4, [], list(large))])
    with pytest.raises(GroupTooLarge, match="keys of key group 4"):
        encode_changes([GroupChanges(4, [b"p" * 1001], [])])


@settings(deadline=None)
@given(st.lists(layers, min_size=1, max_size=5), st.dictionaries(keys, st.binary(max_size=2)))
def test_merged_changes_have_the_same_effect_as_all_in_order(
    changes: list[GroupChanges], state: dict[bytes, bytes]
) -> None:
    expected = state
    for change in changes:
        expected = applied(expected, change)
    merged = merge_changes(changes)
    assert applied(state, merged) == expected
    assert list(read_changes(encode_changes([merged]))) == ([merged] if merged.cleared or merged.entries else [])


@settings(deadline=None)
@given(st.lists(layers, min_size=1, max_size=5))
def test_a_base_contains_only_the_remaining_entries(changes: list[GroupChanges]) -> None:
    expected: dict[bytes, bytes] = {}
    for change in changes:
        expected = applied(expected, change)
    assert merge_changes(changes, as_base=True) == GroupChanges(5, [], sorted(expected.items()))


def test_merging_does_not_modify_its_layers() -> None:
    change = GroupChanges(1, [b"b"], [(b"a", b"1")])
    merge_changes([change, GroupChanges(1, [b"a"], [])])
    assert change == GroupChanges(1, [b"b"], [(b"a", b"1")])


def test_different_groups_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match=r"\[3, 7\]"):
        merge_changes(SMALL[:2])


@settings(deadline=None)
@given(keys, keys)
def test_prefix_end_bounds_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))
