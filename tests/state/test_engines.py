"""The contract of engines, tested on all of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from engine_support import QUICK_ENGINES, ROCKSDB_ENGINES, NewEngine, change, contents
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.engines import base
from penstock.state.engines.base import Engine
from penstock.state.files import GroupChanges, IndexedChanges

ENGINES = {**QUICK_ENGINES, **ROCKSDB_ENGINES}


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with ENGINES[request.param]() as engine:
        yield engine


class TestEveryEngine:
    def test_a_new_replica_is_empty_and_has_no_position(self, engine: Engine) -> None:
        assert engine.position() is None
        assert contents(engine) == []
        with engine.reader() as reader:
            assert reader.position is None
            assert reader.get(b"a") is None

    def test_apply_puts_and_deletes_entries_and_advances_the_position(self, engine: Engine) -> None:
        assert engine.apply(None, [change((b"a", b"1"), (b"b", b"2"), (b"c", b""))], b"p1")
        assert engine.apply(b"p1", [change((b"a", None), (b"b", b"3"), (b"x", None))], b"p2")
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"b", b"3"), (b"c", b"")]
        with engine.reader() as reader:
            assert (reader.get(b"a"), reader.get(b"b"), reader.get(b"c")) == (None, b"3", b"")
            assert reader.position == b"p2"

    def test_changes_are_applied_in_order(self, engine: Engine) -> None:
        layers = [change((b"a", b"1")), change((b"a", b"2")), change((b"ab", b"3"), cleared=(b"a",))]
        assert engine.apply(None, layers, b"p")
        assert contents(engine) == [(b"ab", b"3")]

    def test_a_clear_removes_its_prefix_before_the_entries_are_put(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"ab", b"2"), (b"ac", b"3"), (b"b", b"4"))], b"p1")
        engine.apply(b"p1", [change((b"ac", b"5"), (b"ad", b"6"), cleared=(b"a",))], b"p2")
        assert contents(engine) == [(b"ac", b"5"), (b"ad", b"6"), (b"b", b"4")]

    def test_clearing_the_highest_prefix_removes_all_keys_to_the_end(self, engine: Engine) -> None:
        engine.apply(None, [change((b"\xfe", b"1"), (b"\xff", b"2"), (b"\xff\xff\x00", b"3"))], b"p1")
        engine.apply(b"p1", [change(cleared=(b"\xff",))], b"p2")
        assert contents(engine) == [(b"\xfe", b"1")]

    def test_an_empty_prefix_covers_all_keys(self, engine: Engine) -> None:
        engine.apply(None, [change((b"", b"0"), (b"a", b"1"), (b"b" * 600, b"2"))], b"p1")
        assert contents(engine) == [(b"", b"0"), (b"a", b"1"), (b"b" * 600, b"2")]
        engine.apply(b"p1", [change((b"c", b"3"), cleared=(b"",))], b"p2")
        assert contents(engine) == [(b"c", b"3")]

    def test_an_apply_at_an_unexpected_position_changes_nothing(self, engine: Engine) -> None:
        assert not engine.apply(b"p0", [change((b"a", b"1"))], b"p1")
        assert engine.position() is None
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        for wrong in (None, b"p0", b""):
            assert not engine.apply(wrong, [change((b"a", b"2"), cleared=(b"",))], b"p2")
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]

    def test_an_apply_that_fails_halfway_changes_nothing(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"))], b"p1")

        def failing() -> Iterator[GroupChanges]:
            yield change((b"a", b"2"), cleared=(b"",))
            raise RuntimeError("a file was corrupt")

        class Failing:
            def __iter__(self) -> Iterator[GroupChanges]:
                return failing()

        for changes in (failing(), Failing()):
            with pytest.raises(RuntimeError):
                engine.apply(b"p1", changes, b"p2")
            assert engine.position() == b"p1"
            assert contents(engine) == [(b"a", b"1")]

    def test_reset_empties_the_replica(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"b" * 600, b"2"))], b"p1")
        engine.reset()
        assert engine.position() is None
        assert contents(engine) == []
        assert engine.apply(None, [change((b"c", b"1"))], b"p2")
        assert contents(engine) == [(b"c", b"1")]

    def test_a_reader_sees_the_state_at_its_opening(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"b", b"2"))], b"p1")
        with engine.reader() as before:
            engine.apply(b"p1", [change((b"a", b"9"), (b"b", None), (b"c", b"3"))], b"p2")
            engine.apply(b"p2", [change(cleared=(b"a",))], b"p3")
            with engine.reader() as after:
                assert after.position == b"p3"
                assert list(after.scan(b"")) == [(b"c", b"3")]
            assert before.position == b"p1"
            assert (before.get(b"a"), before.get(b"b"), before.get(b"c")) == (b"1", b"2", None)
            assert list(before.scan(b"")) == [(b"a", b"1"), (b"b", b"2")]
            engine.reset()
            assert list(before.scan(b"")) == [(b"a", b"1"), (b"b", b"2")]
        assert contents(engine) == []

    def test_an_apply_during_a_scan_does_not_affect_the_scan(self, engine: Engine) -> None:
        engine.apply(None, [change(*((b"%02d" % n, b"1") for n in range(50)))], b"p1")
        with engine.reader() as reader:
            scan = reader.scan(b"")
            seen = [next(scan)]
            engine.apply(b"p1", [change((b"00x", b"2"), cleared=(b"2", b"49"))], b"p2")
            seen += scan
        assert [key for key, _ in seen] == [b"%02d" % n for n in range(50)]

    def test_concurrent_scans_of_one_reader_are_independent(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a1", b""), (b"a2", b""), (b"b1", b""), (b"b2", b""))], b"p1")
        with engine.reader() as reader:
            pairs = [(a, b) for (a, _), (b, _) in zip(reader.scan(b"a"), reader.scan(b"b"))]
        assert pairs == [(b"a1", b"b1"), (b"a2", b"b2")]

    def test_long_and_short_keys_are_sorted_together(self, engine: Engine) -> None:
        stem = b"k" * 505
        keys = sorted(stem + tail for tail in (b"", b"a" * 6, b"a" * 7, b"a" * 8, b"b", b"b" * 9, b"c" * 65000))
        engine.apply(None, [change(*((key, key[-3:]) for key in keys))], b"p1")
        for prefix in (b"", b"k", stem, stem + b"a", stem + b"a" * 7, stem + b"b" * 2, stem + b"c" * 60000):
            assert contents(engine, prefix) == [(k, k[-3:]) for k in keys if k.startswith(prefix)]
        engine.apply(b"p1", [change((keys[-1], None), cleared=(stem + b"a" * 7,))], b"p2")
        assert [key for key, _ in contents(engine)] == [key for key in keys[:-1] if not key.startswith(stem + b"a" * 7)]

    def test_threads_can_read_while_another_applies(self, engine: Engine) -> None:
        """Every version writes its number under all keys: a torn view would contain two numbers."""
        versions = 30

        def version(number: int) -> list[GroupChanges]:
            value = b"%d" % number
            return [change(*((b"%d-%d" % (n, number % 3), value) for n in range(100)), cleared=(b"",))]

        engine.apply(None, version(0), b"0")
        torn: list[object] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                with engine.reader() as reader:
                    found = {value for _, value in reader.scan(b"")}
                    if found != {reader.position}:
                        torn.append((found, reader.position))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(1, versions):
                assert engine.apply(b"%d" % (number - 1), version(number), b"%d" % number)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert torn == []

    def test_compaction_drops_rejected_entries_and_keeps_the_position(self, engine: Engine) -> None:
        entries = [(b"", b"old"), (b"a", b"new"), (b"b", b"old"), (b"c" * 600, b"old"), (b"d", b"new")]
        engine.apply(None, [change(*entries)], b"p1")
        assert engine.compact(lambda key, value: value == b"new") == 3
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"new"), (b"d", b"new")]
        assert engine.compact() == 0
        assert contents(engine) == [(b"a", b"new"), (b"d", b"new")]

    def test_compaction_drops_entries_in_batches(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(base, "_DROPPED_AT_ONCE", 7)
        entries = [(b"%03d" % n, b"%d" % (n % 3)) for n in range(100)]
        engine.apply(None, [change(*entries)], b"p1")
        assert engine.compact(lambda key, value: value != b"0") == 34
        assert contents(engine) == [entry for entry in entries if entry[1] != b"0"]

    def test_compaction_stops_if_the_replica_advances(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"old"))], b"p1")

        def keep(key: bytes, value: bytes) -> bool:
            engine.apply(b"p1", [change((b"a", b"new"))], b"p2")
            return value == b"new"

        assert engine.compact(keep) == 0
        assert not engine.drop(b"p1", [b"a"])
        assert contents(engine) == [(b"a", b"new")]

    def test_release_keeps_the_contents_of_the_replica(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        with engine.reader() as reader:
            engine.release()
            assert reader.get(b"a") == b"1"
        engine.release()
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]

    def test_an_engine_estimates_its_size(self, engine: Engine) -> None:
        # Random, because an engine can compress.
        r = random.Random(1)
        engine.apply(None, [change(*((b"%04d" % n, r.randbytes(1000)) for n in range(1000)))], b"p1")
        assert 1_000_000 < engine.size_bytes() < 10_000_000


# Few bytes and few stems, so that keys collide; around LMDB's limit of 511 and beyond the stem of 495.
stems = st.sampled_from([b"", b"", b"", b"k" * 493, b"k" * 508, b"k" * 600])
short = st.binary(max_size=4).map(lambda data: bytes(byte % 3 + 0xFD if byte > 99 else byte % 3 for byte in data))
keys = st.builds(bytes.__add__, stems, short)
changes = st.builds(
    lambda cleared, entries, indexed: (
        IndexedChanges(0, cleared, dict(sorted(entries.items())))
        if indexed
        else GroupChanges(0, cleared, sorted(entries.items()))
    ),
    st.lists(keys, max_size=2),
    st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=12)
    | st.dictionaries(keys, st.binary(max_size=3), max_size=12),
    st.booleans(),
)


some_applies = st.lists(st.lists(changes, max_size=3) | st.just("reset"), max_size=8)


@settings(deadline=None)
@given(applies=some_applies, probes=st.lists(keys, max_size=5), held_at=st.integers(0, 7))
@pytest.mark.parametrize("name", sorted(QUICK_ENGINES))
def test_any_sequence_of_applies_behaves_like_a_dict(
    name: str, applies: list[list[GroupChanges] | str], probes: list[bytes], held_at: int
) -> None:
    equal_a_dict(QUICK_ENGINES[name], applies, probes, held_at)


# Fewer examples, because creating a RocksDB database takes 10 ms.
@settings(deadline=None, max_examples=15)
@given(applies=some_applies, probes=st.lists(keys, max_size=5), held_at=st.integers(0, 7))
@pytest.mark.parametrize("name", sorted(ROCKSDB_ENGINES))
def test_any_sequence_of_applies_to_rocksdb_behaves_like_a_dict(
    name: str, applies: list[list[GroupChanges] | str], probes: list[bytes], held_at: int
) -> None:
    equal_a_dict(ROCKSDB_ENGINES[name], applies, probes, held_at)


def equal_a_dict(
    new_engine: NewEngine, applies: list[list[GroupChanges] | str], probes: list[bytes], held_at: int
) -> None:
    oracle: dict[bytes, bytes] = {}
    position = None
    held, held_oracle, context = None, oracle, None
    with new_engine() as engine:
        for number, layers in enumerate(applies):
            if number == held_at:
                context = engine.reader()
                held, held_oracle = context.__enter__(), dict(oracle)
            if isinstance(layers, str):
                engine.reset()
                oracle, position = {}, None
                continue
            assert engine.apply(position, layers, position := b"%d" % number)
            for layer in layers:
                for prefix in layer.cleared:
                    oracle = {key: value for key, value in oracle.items() if not key.startswith(prefix)}
                for key, value in layer.entries:
                    if value is None:
                        oracle.pop(key, None)
                    else:
                        oracle[key] = value
        with engine.reader() as now:
            for reader, expected in ((now, oracle), *([(held, held_oracle)] if held else [])):
                for probe in [*probes, *expected]:
                    assert reader.get(probe) == expected.get(probe)
                for prefix in [b"", *probes]:
                    assert list(reader.scan(prefix)) == sorted(
                        entry for entry in expected.items() if entry[0].startswith(prefix)
                    )
                for start in probes:
                    assert list(reader.between(start, None)) == sorted(
                        entry for entry in expected.items() if start <= entry[0]
                    )
                for start, end in pairwise([b"", *sorted({*probes, *expected}), b"\xff" * 600]):
                    assert list(reader.between(start, end)) == sorted(
                        entry for entry in expected.items() if start <= entry[0] < end
                    )
                for start, end in zip(probes, reversed(probes), strict=True):
                    assert list(reader.between(start, end)) == sorted(
                        entry for entry in expected.items() if start <= entry[0] < end
                    )
        if context is not None:
            context.__exit__(None, None, None)
