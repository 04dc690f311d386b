"""NumPy arrays as a state type: they are decoded unchanged, and their dtypes can be widened."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.state.descriptors import BadStateType
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import NotEncodable, serializer_for
from penstock.state.serializers.array_wire import array_of, wire_of
from penstock.tables import Savepoint, SavepointWriter
from penstock.testing import JobHarness


def read_only(array):
    array.flags.writeable = False
    return array


ARRAYS = {
    "zeros": np.zeros(3),
    "no axes": np.array(5),
    "empty": np.zeros((2, 0, 3)),
    "every other": np.arange(10)[::2],
    "reversed": np.arange(6, dtype=np.int16).reshape(2, 3)[::-1, ::-1],
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "fortran": np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    "big endian": np.array([1.5, -2.5], ">f4"),
    "read only": read_only(np.arange(3)),
    "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "booleans": np.array([[True], [False]]),
    "half": np.array([1.5, np.inf, -0.0], np.float16),
    "nan": np.array([np.nan, -0.0]),
    "complex": np.array([1 + 2j], np.complex64),
    "unsigned": np.array([2**64 - 1], np.uint64),
    "text": np.array(["a", "bcd", "ä"]),
    "bytes": np.array([b"a", b"\xff\x00b"]),
    "dates": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "durations": np.array([1, -5], "m8[ns]"),
    "long long": np.array([1, 2], np.longlong),
}


def same(one, other):
    return (
        type(one) is type(other) is np.ndarray
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.tobytes() == other.tobytes()
        and (one.flags.f_contiguous == other.flags.f_contiguous or not other.flags.forc)
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_a_decoded_array_equals_the_original_and_is_writable(name):
    serializer = serializer_for(np.ndarray)
    again = serializer.decode(serializer.encode(ARRAYS[name]))
    assert same(again, ARRAYS[name])
    assert again.flags.writeable
    assert again.flags.owndata


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(1, [("a", int)]),
        np.zeros(1, "V8"),
        np.ma.array([1]),
        np.zeros(1, [("a", int)]).view(np.recarray),
        [1.0],
        np.float32(1),
        None,
    ],
    ids=repr,
)
def test_a_value_that_is_not_a_plain_array_is_rejected(value):
    with pytest.raises(NotEncodable, match=r"is not an array"):
        serializer_for(np.ndarray).encode(value)


def test_arrays_must_have_the_declared_dtype():
    serializer = serializer_for(npt.NDArray[np.float32])
    assert serializer.schema() == "array<float32>"
    for array in (np.zeros(2, np.float32), np.zeros(2, ">f4")):
        assert same(serializer.decode(serializer.encode(array)), array)
    with pytest.raises(NotEncodable, match=r"Its dtype is float64. Convert it with .astype\(numpy.float32\)"):
        serializer.encode(np.zeros(2))
    floating = serializer_for(npt.NDArray[np.floating])
    assert floating.schema() == "array<floating>"
    assert same(floating.decode(floating.encode(np.zeros(2, np.float16))), np.zeros(2, np.float16))
    with pytest.raises(NotEncodable):
        floating.encode(np.zeros(2, int))
    assert serializer_for(npt.NDArray[np.longlong]).schema() == serializer_for(npt.NDArray[np.int64]).schema()
    assert serializer_for(npt.NDArray[Any]).schema() == "array"


@pytest.mark.parametrize("kind", [np.object_, np.void, np.longdouble, np.float32 | np.float64], ids=repr)
def test_declaring_an_unsupported_dtype_raises_an_error(kind):
    with pytest.raises(BadStateType, match=r"State 's': .*cannot be stored|does not specify a single dtype"):
        ValueStateDescriptor("s", npt.NDArray[kind])


class Pair(NamedTuple):
    left: npt.NDArray[np.int8]
    right: np.ndarray


@dataclass
class Model:
    weights: npt.NDArray[np.float32]
    layers: list[npt.NDArray[np.float64]]
    names: dict[str, np.ndarray | None]
    pair: Pair
    bias: npt.NDArray[np.int16] | None = None
    n: int = 0


MODEL = Model(
    np.ones((2, 2), np.float32),
    [np.zeros(1), np.zeros((0, 3))],
    {"a": np.array(["x"]), "b": None},
    Pair(np.zeros(1, np.int8), np.array(7)),
    np.array([3], np.int16),
)


def test_fields_of_a_class_can_be_arrays_of_different_dtypes():
    serializer = serializer_for(Model)
    assert serializer.schema().partition(".")[2].partition("(")[2] == (
        "weights: array<float32>, layers: list<array<double>>, names: map<string, array?>, "
        "pair: namedtuple test_arrays.Pair(left: array<int8>, right: array), bias: array<int16>?, n: long)"
    ).replace("array<double>", "array<float64>")
    again = serializer.decode(serializer.encode(MODEL))
    assert same(again.weights, MODEL.weights)
    assert all(map(same, again.layers, MODEL.layers))
    assert same(again.names["a"], MODEL.names["a"])
    assert again.names["b"] is None
    assert all(map(same, again.pair, MODEL.pair))
    assert same(again.bias, MODEL.bias)
    with pytest.raises(NotEncodable, match="field 'left' of Pair"):
        serializer.encode(Model(MODEL.weights, [], {}, Pair(np.zeros(1), np.zeros(1))))


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(
        st.one_of(st.text(max_size=5), st.sampled_from(["<f8", "|O", "<i4", "V8", "<U1000000000", "f16", "<M8[x]"])),
        st.lists(st.one_of(st.integers(-1, 3), st.integers(-(2**63), 2**63)), max_size=4),
        st.binary(max_size=32),
        st.booleans(),
    )
)
def test_decoding_arbitrary_parts_returns_an_array_or_raises_an_error(parts):
    with suppress(ValueError, TypeError, OverflowError):
        assert array_of(None, parts).nbytes == len(parts[2])
    with suppress(msgspec.DecodeError, PenstockError, ValueError):
        serializer_for(np.ndarray).decode(msgspec.msgpack.encode(parts))


def test_numpy_is_not_imported_unless_a_type_uses_it():
    program = (
        "import sys; sys.modules['numpy'] = None;"
        "from penstock.state.serializers import serializer_for;"
        "serializer = serializer_for(list[int]); print(serializer.decode(serializer.encode([1])))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[1]\n"


class Keep(KeyedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value", self.kind))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", self.kind))

    def process_element(self, record, ctx):
        key, value = record
        if value is not None:
            self.value.update(value)
            self.list.add(value)
            # Modifying a stored or returned array does not change the state.
            array = getattr(value, "weights", value)
            if array.size and array.flags.writeable:
                array[...] = 0
            read = self.value.value()
            array = getattr(read, "weights", read)
            array[...] = 0
        yield key, self.value.value(), list(self.list.get())


def program(kind):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("arrays").key_by(lambda record: record[0]).process(Keep(kind)).uid("keep")


def read(job, *keys):
    job.output.clear()
    job.push(*((key, None) for key in keys)).epoch()
    return {key: (value, held) for key, value, held in job.output}


@pytest.mark.parametrize("backend", ["memory", "filesystem", "rocksdb"])
def test_a_job_keeps_arrays_across_epochs_crashes_and_savepoints(backend, tmp_path):
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(1.5, np.float32)
    with JobHarness(program(npt.NDArray[np.float32]), backend=backend, parallelism=2) as job:
        job.push(("a", first.copy()), ("b", second.copy())).epoch()
        job.push(("a", second.copy())).epoch()
        job.lose_replicas()
        job.crash()
        found = read(job, "a", "b")
        assert same(found["a"][0], second)
        assert all(map(same, found["a"][1], [first, second]))
        assert same(found["b"][0], second)
        path = job.savepoint(tmp_path)
    with JobHarness(program(npt.NDArray[np.float32]), backend=backend, parallelism=3, from_savepoint=path) as job:
        assert all(map(same, read(job, "a")["a"][1], [first, second]))


@dataclass
class Weights:
    weights: np.ndarray
    n: int = 0


@dataclass
class NewWeights:
    weights: np.ndarray
    n: float = 0.0
    seen: list[str] = field(default_factory=list)


NewWeights.__qualname__ = NewWeights.__name__ = "Weights"


def test_a_class_with_an_array_field_can_be_migrated(tmp_path):
    storage = LocalStorage(str(tmp_path))
    with JobHarness(program(Weights), storage=storage) as job:
        job.push(("a", Weights(np.ones((2, 2), ">i2"), 3))).epoch()
    with JobHarness(program(NewWeights), storage=storage) as job:
        value, _ = read(job, "a")["a"]
        assert same(value.weights, np.ones((2, 2), ">i2"))
        assert (value.n, value.seen) == (3.0, [])


WIDER = [
    (np.int8, np.int64),
    (np.uint8, np.int16),
    (np.int32, np.float64),
    (np.float32, np.float64),
    (np.float32, np.floating),
    (np.bool_, np.int8),
    (np.float32, Any),
]
NARROWER = [
    (np.int64, np.int32),
    (np.float64, np.float32),
    (np.uint64, np.int64),
    (np.floating, np.float64),
    (Any, np.int8),
]


@pytest.mark.parametrize(("before", "after"), WIDER, ids=repr)
def test_a_dtype_can_be_widened(before, after, tmp_path):
    storage = LocalStorage(str(tmp_path))
    with JobHarness(program(npt.NDArray[before]), storage=storage) as job:
        job.push(("old", np.array([[1], [0]], before))).epoch()
    with JobHarness(program(npt.NDArray[after]), storage=storage) as job:
        now = before if after in (Any, np.floating) else after
        assert same(read(job, "old")["old"][0], np.array([[1], [0]], now))
        job.push(("new", np.array([[1], [0]], now))).epoch()
        job.crash()
        assert same(read(job, "new")["new"][0], np.array([[1], [0]], now))


@pytest.mark.parametrize(("before", "after"), NARROWER, ids=repr)
def test_a_lossy_change_of_the_dtype_is_rejected(before, after, tmp_path):
    storage = LocalStorage(str(tmp_path))
    stored = np.array([1], np.float64 if before in (Any, np.floating) else before)
    with JobHarness(program(npt.NDArray[before]), storage=storage) as job:
        job.push(("a", stored)).epoch()
    with JobHarness(program(npt.NDArray[after]), storage=storage) as job:
        job.push(("a", None))
        with pytest.raises(UserFunctionFailed, match="can only change to a dtype to which NumPy casts safely"):
            job.epoch()


class TestTables:
    def test_a_table_shows_the_dtype_shape_and_values_of_an_array(self, tmp_path):
        with JobHarness(program(npt.NDArray[np.float32])) as job:
            job.push(("a", np.arange(6, dtype=np.float32).reshape(2, 3).T)).epoch()
            path = job.savepoint(tmp_path / "one")
        (row,) = Savepoint.load(path).state("keep", "value").rows()
        assert row["value"] == {"dtype": "<f4", "shape": [3, 2], "values": [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]}
        frame = Savepoint.load(path).state("keep", "value").to_pandas()
        assert list(frame.columns) == ["key", "value.dtype", "value.shape", "value.values"]
        assert Savepoint.load(path).state("keep", "value").info.type == "array<float32>"

    def test_a_table_shows_older_arrays_with_the_wider_dtype(self, tmp_path):
        with JobHarness(program(npt.NDArray[np.int8])) as job:
            job.push(("a", np.array([1], np.int8))).epoch()
            path = job.savepoint(tmp_path / "one")
        with JobHarness(program(npt.NDArray[np.float64]), from_savepoint=path) as job:
            job.push(("b", np.array([0.5]))).epoch()
            path = job.savepoint(tmp_path / "two")
        rows = {row["key"]: row["value"] for row in Savepoint.load(path).state("keep", "value").rows()}
        assert rows["a"] == {"dtype": "<f8", "shape": [1], "values": [1.0]}

    @pytest.mark.parametrize("name", [name for name in ARRAYS if ARRAYS[name].size])
    def test_a_savepoint_writer_writes_arrays_back_unchanged(self, name, tmp_path):
        array = ARRAYS[name]
        assert array.size

        def changed(table):
            table["key"] = table["key"] + "!"
            return table

        with JobHarness(program(np.ndarray)) as job:
            job.push(("a", array.copy("K"))).epoch()
            path = job.savepoint(tmp_path / "one")
        writer = SavepointWriter.from_existing_savepoint(path).transform_state("keep", "value", changed)
        with JobHarness(program(np.ndarray), from_savepoint=writer.write(str(tmp_path / "two"))) as job:
            again = read(job, "a!")["a!"][0]
            assert (again.dtype, again.shape) == (array.dtype, array.shape)
            assert again.tobytes() == array.tobytes()

    def test_a_savepoint_writer_rejects_values_that_do_not_fit_the_shape(self, tmp_path):
        def changed(table):
            table.at[0, "value.shape"] = [5]
            return table

        with JobHarness(program(npt.NDArray[np.int8])) as job:
            job.push(("a", np.array([1], np.int8))).epoch()
            path = job.savepoint(tmp_path / "one")
        writer = SavepointWriter.from_existing_savepoint(path).transform_state("keep", "value", changed)
        with pytest.raises(PenstockError, match=r"An array of shape \[5\] cannot have 1 value"):
            writer.write(str(tmp_path / "two"))


def test_a_record_with_an_array_arrives_unchanged_despite_its_annotation():
    def model(n: int) -> Weights:
        return Weights(np.asfortranarray(np.full((2, 3), n)), n)

    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("numbers").map(model).rebalance().map(lambda value: value)
    with JobHarness(stream, parallelism=2) as job:
        job.push(1).epoch()
        (value,) = job.output
        assert same(value.weights, np.asfortranarray(np.full((2, 3), 1)))


def test_the_wire_format_of_an_array_never_changes():
    """The parts are stored on disk, so they must never change."""
    assert wire_of(np.array([[1, 2]], ">i2")) == (">i2", [1, 2], b"\x00\x01\x00\x02", False)
    assert wire_of(np.asfortranarray([[1, 2], [3, 4]]).astype("<i1")) == ("|i1", [2, 2], b"\x01\x03\x02\x04", True)
