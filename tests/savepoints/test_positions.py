"""Spark's log in savepoints: each source finds its position again, wherever it is in the new plan."""

import pickle
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from savepoint_jobs import Quiet, Sum, by_first, environment, sums

from penstock.checkpoint.manifest import NotRestorable, load
from penstock.savepoint.format import load_savepoint, publish_metadata, savepoint_storage
from penstock.savepoint.positions import Positions, UnknownLog, put_together, take_apart
from penstock.savepoint.restoring import RestoreSettings, restore_savepoint
from penstock.spark.log import SparkLog
from penstock.spark.sources import _write_rest
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness


def entry(*positions):
    return "\n".join(["v1", '{"batchTimestampMs":5}', *positions]).encode()


LOG = {
    "offsets/6": entry('{"logOffset":3}', '{"a":5}', "-"),
    "offsets/7": entry('{"logOffset":4}', '{"a":9}', '{"logOffset":0}'),
    "sources/0/3.compact": b"v1\nfiles up to 3",
    "sources/0/4": b"v1\nfile 4",
    "sources/2/0": b"v1\nfile 0",
}
SOURCES = ["files", "python", "more"]


class TestARebuiltLog:
    def test_a_log_rebuilt_for_the_same_sources_is_unchanged(self):
        assert put_together(take_apart(LOG, SOURCES, "here"), SOURCES) == LOG

    def test_a_rebuilt_log_follows_the_new_order_of_sources(self):
        log = put_together(take_apart(LOG, SOURCES, "here"), ["new", "more", "files"])
        assert log == {
            "offsets/6": entry("-", "-", '{"logOffset":3}'),
            "offsets/7": entry("-", '{"logOffset":0}', '{"logOffset":4}'),
            "sources/1/0": b"v1\nfile 0",
            "sources/2/3.compact": b"v1\nfiles up to 3",
            "sources/2/4": b"v1\nfile 4",
        }

    def test_a_log_rebuilt_for_other_sources_is_empty(self):
        positions = take_apart(LOG, SOURCES, "here")
        assert put_together(positions, ["other", "and another"]) == {}
        assert put_together(Positions(), ["files"]) == {}

    def test_a_source_with_several_lines_keeps_their_order(self):
        positions = take_apart(LOG, ["both", "python", "both"], "here")
        assert [line.position for line in positions.lines["both"]] == ['{"logOffset":4}', '{"logOffset":0}']
        log = put_together(positions, ["python", "both", "both"])
        assert log["offsets/7"] == entry('{"a":9}', '{"logOffset":4}', '{"logOffset":0}')
        assert log["sources/2/0"] == b"v1\nfile 0"

    @pytest.mark.parametrize("sources", [["files", "python"], [*SOURCES, "one too many"], []])
    def test_a_log_with_a_different_number_of_sources_is_refused(self, sources):
        with pytest.raises(UnknownLog, match="and 3 sources, but 'v1'"):
            take_apart(LOG, sources, "here")

    def test_a_log_with_an_unknown_format_is_refused(self):
        with pytest.raises(UnknownLog, match="format 'v2'"):
            take_apart({"offsets/0": b"v2\n{}\n-"}, ["one"], "here")


def program(*uids):
    env = environment()
    first, *others = [env.from_source(Quiet()).uid(uid) for uid in uids]
    return by_first(first.union(*others)).process(Sum()).uid("sum")


def run_batches(job, *logs):
    """Run epochs as on Spark, whose log has these files."""
    job.epoch(0)
    index = {}
    for batch, files in enumerate(logs):
        index |= dict.fromkeys(files, job.checkpoint + 1)
        job._driver.run_epoch(batch, files, log_index=index)


class TestASparkJob:
    @pytest.fixture
    def path(self, tmp_path):
        job = JobHarness(program("x", "y", "z"))
        run_batches(
            job,
            {"offsets/0": entry("x0", "y0", "-"), "sources/0/0": b"file x0"},
            {"offsets/1": entry("x1", "y1", "z0"), "sources/0/1": b"file x1", "sources/2/0": b"file z0"},
        )
        return job.stop_with_savepoint(tmp_path)

    def test_a_restored_job_starts_its_query_at_the_positions_of_the_savepoint(self, path, tmp_path):
        with JobHarness(program("z", "new", "x"), from_savepoint=path, allow_non_restored_state=True) as job:
            last = job._driver.last
            assert last.batch == 1
            log = SparkLog(tmp_path / "log")
            log.rewrite(last, lambda number: load(job.storage, number)[0])
            assert files_in(log.root) == {
                "offsets/0": entry("-", "-", "x0"),
                "offsets/1": entry("z0", "-", "x1"),
                "sources/0/0": b"file z0",
                "sources/2/0": b"file x0",
                "sources/2/1": b"file x1",
                "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
                "commits/1": b'v1\n{"nextBatchWatermarkMs":0}',
            }

    def test_the_first_manifest_is_kept_while_its_log_is_needed(self, path):
        with JobHarness(program("x", "y", "z"), from_savepoint=path) as job:
            first = job.checkpoint
            for _ in range(40):
                job.epoch()
            job.crash()
            assert load(job.storage, first)[0].spark_log["sources/0/0"] == b"file x0"

    def test_a_source_that_spark_now_reads_as_several_is_refused(self, path):
        lines = ["x", "x", "y", "z"]
        with (
            JobHarness(program("x", "y", "z")) as job,
            pytest.raises(NotRestorable, match=r"'x'.* as 1 sources and now reads it as 2"),
        ):
            restore_savepoint(DriverStorage(), job._graph, lines, "lineage", "token", RestoreSettings(path))

    def test_a_job_resumed_from_its_checkpoint_must_have_the_same_sources(self, path):
        storage = DriverStorage()
        options = {"storage": storage, "from_savepoint": path}
        JobHarness(program("z", "x", "y"), **options).epoch()
        JobHarness(program("z", "x", "y"), storage=storage).epoch()
        with pytest.raises(
            NotRestorable, match=r"\['z', 'x', 'y'\], in this order, but this program has the sources \['x'"
        ):
            JobHarness(program("x", "y", "z"), storage=storage)

    def test_a_job_without_the_saved_sources_starts_at_batch_0(self, path):
        with JobHarness(program("p", "q"), from_savepoint=path, allow_non_restored_state=True) as job:
            assert job._driver.last.batch is None
            assert job._driver.last.log_index == {}


class TestACollection:
    """Spark streams a copy that belongs to the lineage, so the position is the number of records."""

    def program(self, source):
        return by_first(source.uid("pairs")).process(Sum()).uid("sum")

    def test_a_collection_continues_at_its_position(self, tmp_path):
        records = [("k", 1 << number) for number in range(6)]
        job = JobHarness(self.program(environment().from_collection(records)))
        job.epoch(2)
        files = {"offsets/0": entry('{"logOffset":0}'), "sources/0/0": b"a file of the first lineage"}
        job._feed.taken = {"pairs": 2}
        job._driver.run_epoch(0, files, log_index=dict.fromkeys(files, 2))
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(self.program(environment().from_collection(records)), from_savepoint=path) as job:
            assert job._driver.last.log_index == {}
            assert job._driver.last.records == {"pairs": 4}
            assert [total for _, total in job.run()] == [15 + 16, 15 + 16 + 32]

    def test_a_source_of_another_kind_cannot_replace_a_collection(self, tmp_path):
        job = JobHarness(self.program(environment().from_collection([("k", 1)])))
        job.epoch()
        path = job.stop_with_savepoint(tmp_path)
        with pytest.raises(NotRestorable, match=r"source 'Collection' \(uid 'pairs'\).*is of another kind"):
            JobHarness(self.program(environment().from_source(Quiet())), from_savepoint=path)

    def test_the_copy_of_a_collection_omits_records_already_read(self, tmp_path):
        def read_back(read_before, per_file):
            folder = tmp_path / f"{read_before}-{per_file}"
            folder.mkdir()
            _write_rest(read_before, list(range(10)), folder, per_file)
            tables = [pq.read_table(file) for file in sorted(folder.iterdir())]
            return [record for table in tables for chunk in table["chunk"] for record in pickle.loads(chunk.as_py())]

        assert read_back(0, 3) == list(range(10))
        assert read_back(4, 3) == [4, 5, 6, 7, 8, 9]
        assert read_back(4, 0) == [4, 5, 6, 7, 8, 9]
        assert read_back(10, 3) == []


def test_a_partly_read_batch_dataframe_is_refused(tmp_path):
    job = JobHarness(sums())
    job.push(("a", 1)).epoch()
    path = job.stop_with_savepoint(tmp_path)
    storage = savepoint_storage(path)
    metadata = load_savepoint(storage)
    source = msgspec.structs.replace(metadata.sources["numbers"], reader="rows")
    with JobHarness(sums()) as job:
        job._graph.sources()[0].reader = "rows"
        storage.delete("_metadata")
        publish_metadata(storage, msgspec.structs.replace(metadata, sources={"numbers": source}))
        with pytest.raises(NotRestorable, match="a batch DataFrame, 1 rows were read"):
            restore_savepoint(DriverStorage(), job._graph, ["numbers"], "lineage", "token", RestoreSettings(path))


def files_in(root: Path):
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != "metadata"]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}
