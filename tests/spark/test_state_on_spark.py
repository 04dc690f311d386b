"""Keys and state across real worker processes, on both backends."""

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from programs import Count, words

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, MemoryStateBackend, RuntimeContext
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = pytest.mark.spark

BACKENDS = [False, True]


@pytest.mark.parametrize("checkpoints", BACKENDS, ids=["memory", "filesystem"])
def test_key_equality_is_as_documented(make_env: Any, checkpoints: bool) -> None:
    numpy = pytest.importorskip("numpy")
    keys = [1, 1.0, True, numpy.int64(1), (1,), None, math.nan, float("nan"), numpy.float64(1), "1", b"1"]
    env = make_env(records=3, checkpoints=checkpoints)
    stream = env.from_collection(keys * 2).key_by(lambda key: key).process(Count())
    with stream.execute_and_collect("keys") as results:
        counted = Counter((repr(key), n) for key, n in results)
    expected: Counter[Any] = Counter()
    for name, count in {"1": 4, "1.0": 4, "True": 2, "(1,)": 2, "None": 2, "nan": 4, "'1'": 2, "b'1'": 2}.items():
        expected.update((name, n + 1) for n in range(count))
    assert counted == expected


def test_a_set_as_key_is_refused_with_a_fix(make_env: Any) -> None:
    env = make_env()
    env.from_collection([1]).key_by(lambda number: {number}).process(Count()).name("count").print()
    with pytest.raises(PenstockError, match=r"key selector of count.*\n.*tuple"):
        env.execute()


class Everything(KeyedProcessFunction):
    """Uses a value, a list and a map, and mutates values it read without storing them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", list[int]))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", int))
        self.by_length = runtime_context.get_map_state(MapStateDescriptor("by_length", int, int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        seen = self.seen.value() or []
        seen.append(len(value))
        self.seen.update(seen)
        seen.append(-1)
        self.all.add(len(value))
        self.by_length[len(value)] = (self.by_length[len(value)] or 0) + 1
        (self.seen.value() or []).append(-2)
        yield value[0], tuple(self.seen.value() or ()), tuple(self.all), tuple(self.by_length.items())


@pytest.mark.parametrize("checkpoints", BACKENDS, ids=["memory", "filesystem"])
def test_all_states_have_the_same_output_in_one_epoch_and_in_many(make_env: Any, checkpoints: bool) -> None:
    outputs = []
    for records in (0, 4):
        env = make_env(parallelism=1, records=records, checkpoints=checkpoints)
        stream = env.from_collection(words(40, 5)).key_by(lambda word: word[0]).process(Everything())
        with stream.execute_and_collect(f"states-{records}") as results:
            outputs.append(sorted(results))
    assert outputs[0] == outputs[1]
    assert not any(-1 in seen or -2 in seen for _, seen, _, _ in outputs[0])


def test_the_memory_backend_refuses_state_over_its_limit(make_env: Any) -> None:
    class Hoard(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.text = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.text.update("x" * 1000)

    env = make_env(records=500)
    env.enable_checkpointing(100)
    env.set_state_backend(MemoryStateBackend(max_state_size=100_000))
    env.from_collection(range(1000)).key_by(lambda n: n).process(Hoard()).name("hoard").uid("h").print()
    with pytest.raises(PenstockError) as raised:
        env.execute()
    message = str(raised.value)
    assert "'text'" in message
    assert "'hoard' (uid 'h')" in message
    assert "state.backend.memory.max-state-size is 100,000" in message
    assert "FsStateBackend(" in message


@pytest.mark.parametrize("named", [False, True], ids=["default", "memory"])
def test_state_without_checkpoints_is_limited_by_disk_alone(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Uses more than the Memory backend allows, over several epochs, and partly more than a task's memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = make_env(records=10_000, penstock__state__overlay__memory="1000000")
    if named:
        env.set_state_backend(MemoryStateBackend())
    stored: list[int] = []
    env.add_epoch_listener(lambda epoch: stored.append(epoch.state_bytes))
    keys = [f"{n:0500d}" for n in range(10_000)]
    stream = env.from_collection([*keys, *keys, *keys]).key_by(lambda key: key).process(Count())
    with stream.execute_and_collect() as results:
        assert Counter(n for _, n in results) == {1: 10_000, 2: 10_000, 3: 10_000}
    assert len(stored) >= 3
    assert max(stored) > 5 * 1024 * 1024
    assert not list(tmp_path.glob("penstock-scratch-*/state/*"))
    assert not list((tmp_path / "replicas").glob("*"))


def test_state_over_many_epochs_in_memory_is_held_once(make_env: Any, tmp_path: Path) -> None:
    """Two thousand updates of few keys stay far below the limit: the driver holds state, not history."""
    env = make_env(records=100)
    env.enable_checkpointing(1)
    env.set_state_backend(MemoryStateBackend(max_state_size=20_000))
    stream = env.from_collection([n % 5 for n in range(2000)]).key_by(lambda n: n).process(Count())
    with stream.execute_and_collect() as results:
        assert Counter(results) == Counter((key, n + 1) for key in range(5) for n in range(400))


def test_bases_are_merged_during_epochs_and_old_files_are_removed(make_env: Any, tmp_path: Path) -> None:
    env = make_env(records=60, checkpoints=True)
    config = env.get_configuration()
    config.set_integer("penstock.checkpoint.base.min-bytes", 0)
    config.set_string("execution.checkpointing.interval", "1 ms")
    (env.from_collection([n % 40 for n in range(2400)]).key_by(lambda n: n).process(Count()).uid("count").print())
    env.execute("bases")
    storage = newest_lineage(tmp_path / "checkpoints" / "bases")
    manifest = last_manifest(storage)
    assert manifest.id >= 40
    assert any(base.name for base in manifest.bases["count"].values())
    assert len(storage.list("manifests/")) < manifest.id
    assert read_values(storage, "count", "n", int) == dict.fromkeys(range(40), 60)
