"""Savepoints from strangers: nothing in them runs, nothing in them takes all memory, and errors say which file."""

import pickle
import shutil
from contextlib import suppress

import msgspec
import pyarrow as pa
import pytest
from forging import bomb, forged, replaced_everywhere, write_metadata
from table_jobs import saved
from typed_job import RECORDS, tolerated, typed
from typer.testing import CliRunner
from xxhash import xxh3_128_hexdigest

from penstock.checkpoint.manifest import BadManifest, latest
from penstock.cli.main import app
from penstock.errors import PenstockError
from penstock.savepoint.format import (
    METADATA,
    DamagedSavepoint,
    load_savepoint,
    savepoint_storage,
)
from penstock.savepoint.positions import Line, Positions
from penstock.spark.log import SparkLog
from penstock.state import files
from penstock.state.files import CorruptFile, read_changes
from penstock.tables import Savepoint, history
from penstock.tables.contents import UnreadableState
from penstock.tables.schemas import shape_of
from penstock.testing import JobHarness


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return saved(typed(), tmp_path_factory.mktemp("good"), RECORDS[:2], RECORDS[2:], max_parallelism=4).path


def look_at_everything(path):
    """All that can be done with a savepoint but begin a job with it. What is refused, is so with an error of ours."""
    runner = CliRunner()
    for arguments in (["state", "ls", path], ["state", "get", path, "typed", "total"], ["savepoint", "inspect", path]):
        result = runner.invoke(app, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    try:
        savepoint = Savepoint.load(path)
    except PenstockError:
        return
    tolerated(savepoint.describe)
    tolerated(lambda: savepoint.differences(savepoint))
    for uid in savepoint.operators:
        tolerated(lambda uid=uid: savepoint.sizes(uid))
    for info in savepoint.states():
        tolerated(lambda info=info: savepoint.state(info.uid, info.name).to_pandas())
        tolerated(lambda info=info: savepoint.state(info.uid, info.name).to_arrow().read_all())
        tolerated(lambda info=info: savepoint.state(info.uid, info.name).get("a"))
        tolerated(lambda info=info: history(path, info.uid, info.name, "a"))


def begin_with(path):
    """Begin a job with it: what it was made of is read by a job whose types are no pickles."""
    # What a job's decoders say of foreign bytes may be anything.
    with (
        suppress(Exception),
        JobHarness(typed(), from_savepoint=path, max_parallelism=4, allow_non_restored_state=True) as job,
    ):
        job.push(*RECORDS).epoch()
        job.set_clock(10**13 + 10)


class TestAPickle:
    """One that makes a directory, wherever bytes or texts are in a savepoint."""

    @pytest.fixture
    def marker(self, tmp_path):
        return tmp_path / "it-ran"

    def test_runs_where_it_is_read_at_all(self, marker):
        pickle.loads(bomb(marker))
        assert marker.exists()

    def test_in_any_field_of_the_metadata_does_not_run(self, good, tmp_path, marker):
        metadata = msgspec.to_builtins(load_savepoint(savepoint_storage(good)))
        forgeries = list(replaced_everywhere(metadata, bomb(marker, protocol=0)))
        assert len(forgeries) > 40
        for number, forgery in enumerate(forgeries):
            path = forged(good, tmp_path / str(number))
            write_metadata(path, msgspec.msgpack.encode(forgery))
            look_at_everything(path)
            begin_with(path)
            shutil.rmtree(path)
        assert not marker.exists()

    def test_in_place_of_a_file_does_not_run(self, good, tmp_path, marker):
        for number, change in enumerate(({"change_file": lambda data: bomb(marker)}, {})):
            path = forged(good, tmp_path / str(number), **change)
            if not change:
                write_metadata(path, bomb(marker))
                with pytest.raises(DamagedSavepoint):
                    Savepoint.load(path)
            look_at_everything(path)
            begin_with(path)
        (tmp_path / "0" / METADATA).write_bytes(bomb(marker))
        look_at_everything(str(tmp_path / "0"))
        assert not marker.exists()

    @pytest.mark.parametrize("place", ["key", "behind the key", "value", "element", "map key", "stamped"])
    def test_in_an_entry_does_not_run(self, good, tmp_path, marker, place):
        payload = bomb(marker)

        def change(group, entries):
            return [planted(place, full, data, payload) for full, data in entries]

        path = forged(good, tmp_path / "forged", change_entries=change)
        look_at_everything(path)
        begin_with(path)
        assert not marker.exists()

    def test_in_a_state_of_pickles_runs_only_where_that_is_allowed(self, good, tmp_path, marker):
        def pickled(metadata):
            operator = metadata.operators["typed"]
            states = {**operator.snapshot.states, "fading": "value pickle", "total": "value pickle"}
            snapshot = msgspec.structs.replace(operator.snapshot, states=states, ttl={})
            return msgspec.structs.replace(
                metadata,
                operators={**metadata.operators, "typed": msgspec.structs.replace(operator, snapshot=snapshot)},
            )

        payload = msgspec.msgpack.encode(bomb(marker))
        path = forged(good, tmp_path / "forged", pickled, planting(payload))
        look_at_everything(path)
        assert not marker.exists()
        assert set(Savepoint.load(path).state("typed", "total").to_pandas()["value"]) == {bomb(marker)}
        with pytest.raises(FileExistsError):
            # There are three keys: the second finds the directory that the first has made.
            Savepoint.load(path).state("typed", "total", allow_pickle=True).to_pandas()
        assert marker.exists()

    def test_that_a_job_has_no_type_for_is_refused_before_it_begins(self, good, tmp_path, marker):
        def pickled(metadata):
            operator = metadata.operators["typed"]
            snapshot = msgspec.structs.replace(operator.snapshot, states={"total": "value pickle"})
            changed = msgspec.structs.replace(operator, snapshot=snapshot)
            return msgspec.structs.replace(metadata, operators={**metadata.operators, "typed": changed})

        path = forged(good, tmp_path / "forged", pickled)
        with (
            pytest.raises(PenstockError, match=r"pickle"),
            JobHarness(typed(), from_savepoint=path, max_parallelism=4) as job,
        ):
            job.push(*RECORDS).epoch()


def planting(payload):
    return lambda group, entries: [(key, payload) for key, _ in entries]


def planted(place, full, data, payload):
    length = int.from_bytes(full[6:10], "big")
    if place == "key":
        return full[:6] + len(payload).to_bytes(4, "big") + payload + full[10 + length :], data
    if place == "behind the key":
        return full + payload, data
    if place == "map key":
        return full[: 10 + length] + b"\1" + payload, data
    if place == "element":
        return full, msgspec.msgpack.encode([payload])
    if place == "stamped":
        return full, bytes(9) + payload
    return full, payload


class TestNamesInASavepoint:
    """They become names of files: no other file is read or written for them."""

    @pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "state/../../x.arrow", "state/x.arrow", ""])
    def test_of_blocks_are_those_of_blocks(self, good, tmp_path, name):
        def change(metadata):
            operator = metadata.operators["typed"]
            blocks = {number: msgspec.structs.replace(b, name=name) for number, b in operator.blocks.items()}
            changed = msgspec.structs.replace(operator, blocks=blocks)
            return msgspec.structs.replace(metadata, operators={**metadata.operators, "typed": changed})

        path = forged(good, tmp_path / "forged", change)
        with pytest.raises(DamagedSavepoint, match=r"operator 'typed' has a block in .*, which is not a valid name"):
            Savepoint.load(path)

    @pytest.mark.parametrize("name", ["../../../../evil.py", "a/b", ".hidden", "..", "x\n"])
    def test_of_positions_are_those_of_sparks_log(self, good, tmp_path, name):
        def change(metadata):
            positions = Positions(
                batches=metadata.positions.batches, lines={"numbers": [Line(offsets={}, files={name: b"x"})]}
            )
            return msgspec.structs.replace(metadata, positions=positions)

        path = forged(good, tmp_path / "forged", change)
        with pytest.raises(DamagedSavepoint, match=r"source 'numbers' has a file .*, which is not a valid name in"):
            JobHarness(typed(), from_savepoint=path, max_parallelism=4)

    @pytest.mark.parametrize("name", ["sources/0/../../../evil.py", "/evil.py", "commits/0", "offsets/../x"])
    def test_of_a_manifest_write_no_other_file_than_those_of_the_log(self, tmp_path, name):
        with JobHarness(typed(), max_parallelism=4) as job:
            job.push(*RECORDS).epoch()
            manifest, _ = latest(job.storage)
        forgery = msgspec.structs.replace(manifest, spark_log={name: b"x"}, log_index={name: manifest.id})
        with pytest.raises(BadManifest, match="which is not a valid name in Spark"):
            SparkLog(tmp_path / "log").rewrite(forgery, lambda number: forgery)
        assert not list(tmp_path.rglob("*"))

    def test_of_a_source_that_is_copied_lead_to_no_file(self, good, tmp_path):
        """What a job streams a copy of holds pickles: a savepoint must not say where that copy is."""

        def change(metadata):
            source = msgspec.structs.replace(metadata.sources["numbers"], copied=False, records=0)
            positions = Positions(
                batches={0: "{}"}, lines={"numbers": [Line(offsets={0: "0"}, files={"7": b"to another file"})]}
            )
            return msgspec.structs.replace(metadata, sources={"numbers": source}, positions=positions)

        path = forged(good, tmp_path / "forged", change)
        with JobHarness(typed(), from_savepoint=path, max_parallelism=4) as job:
            manifest, _ = latest(job.storage)
            assert manifest.spark_log == {}


class TestNumbersInASavepoint:
    @pytest.mark.parametrize(
        ("field", "value"), [("max_parallelism", 0), ("max_parallelism", 2**40), ("parallelism", -1)]
    )
    def test_are_within_their_bounds(self, good, tmp_path, field, value):
        def change(metadata):
            operator = metadata.operators["typed"]
            snapshot = msgspec.structs.replace(operator.snapshot, **{field: value})
            changed = msgspec.structs.replace(operator, snapshot=snapshot)
            return msgspec.structs.replace(metadata, operators={**metadata.operators, "typed": changed})

        with pytest.raises(DamagedSavepoint, match=r"operator 'typed' has a parallelism of"):
            Savepoint.load(forged(good, tmp_path / "forged", change))


class TestWhatWouldTakeAllMemory:
    def test_a_compressed_file_is_refused_before_it_is_taken_apart(self, good, tmp_path):
        bombs = compressed_file()
        assert len(bombs) < 100_000
        with pytest.raises(CorruptFile, match="compressed"):
            list(read_changes(bombs))
        path = forged(good, tmp_path / "forged", change_file=lambda data: bombs)
        with pytest.raises(CorruptFile, match=r"'state/.*compressed"):
            Savepoint.load(path).state("typed", "total").to_pandas()

    @pytest.mark.parametrize(
        "poison", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc6\xff\xff\xff\xff"]
    )
    def test_counts_that_are_too_large_are_refused(self, good, tmp_path, poison):
        def change(group, entries):
            return list({full[:6] + len(poison).to_bytes(4, "big") + poison: poison for full, _ in entries}.items())

        path = forged(good, tmp_path / "forged", change_entries=change)
        for name in ("total", "names", "parts", "fading"):
            with pytest.raises(UnreadableState, match=r"State '.*' of operator .*'state/[0-9a-f]+\.arrow' in"):
                Savepoint.load(path).state("typed", name)
        write_metadata(path, poison)
        with pytest.raises(DamagedSavepoint, match=METADATA):
            Savepoint.load(path)

    def test_types_within_types_without_end_are_shown_as_text(self):
        shape = shape_of("list<" * 100_000 + "long" + ">" * 100_000)
        assert shape.arrow == pa.string()


def compressed_file():
    """A file like ours in every way, but that its one batch is 64 MB of zeros, compressed."""
    value = pa.array([bytes(64 * 1024 * 1024)], pa.binary())
    batch = pa.record_batch([pa.array([2], pa.int8()), pa.array([bytes(10)], pa.binary()), value], schema=files._SCHEMA)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, files._SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    whole = buffer.getvalue()
    with pa.ipc.open_stream(whole):
        start = 8 + int.from_bytes(whole[4:8].to_pybytes(), "little")
    message = whole.slice(start, len(whole) - start - 8)
    index = msgspec.json.encode([[0, 1, len(message), xxh3_128_hexdigest(message)]])
    schema = files._SCHEMA.with_metadata(
        {
            "penstock.format": b"1",
            "penstock.index": index,
            "penstock.index.checksum": xxh3_128_hexdigest(index),
        }
    )
    footer = b"footer"
    head = b"ARROW1\0\0" + schema.serialize().to_pybytes() + message.to_pybytes()
    return head + b"\xff\xff\xff\xff\0\0\0\0" + footer + len(footer).to_bytes(4, "little") + b"ARROW1"
