"""Open sink output and positions of Python sources in a restored job."""

import os

import pytest
from savepoint_jobs import environment

from penstock.common import Encoder
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

LATE = RollingPolicy.default_rolling_policy(rollover_interval=10**12, inactivity_interval=10**12)


def into_files(base, records=()):
    env = environment()
    sink = FileSink.for_row_format(str(base), Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(LATE).with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    env.from_collection(list(records)).uid("records").sink_to(sink).uid("files")
    return env


def shown(base):
    """Return the lines of all files that a reader of the directory sees."""
    lines = []
    for directory, folders, names in os.walk(base):
        folders[:] = [folder for folder in folders if not folder.startswith((".", "_"))]
        for name in names:
            if not name.startswith((".", "_")):
                with open(os.path.join(directory, name)) as file:
                    lines += file.read().splitlines()
    return sorted(lines)


class TestFiles:
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_a_restored_job_finishes_open_files_with_every_record_once(self, tmp_path, parallelism):
        base = tmp_path / "out"
        job = JobHarness(into_files(base), parallelism=2)
        for number in range(5):
            job.push(*(f"{number}-{each}" for each in range(4))).epoch()
        path = job.stop_with_savepoint(tmp_path / "savepoints")
        assert shown(base) == []
        with JobHarness(into_files(base), parallelism=parallelism, from_savepoint=path) as job:
            job.push(*(f"5-{each}" for each in range(4))).epoch()
            job.crash()
            job.end()
        assert shown(base) == sorted(f"{number}-{each}" for number in range(6) for each in range(4))


class TestAPythonSource:
    def program(self):
        """The number of splits is the parallelism at the start of the job."""
        return environment().from_sequence(1, 100).uid("numbers").map(lambda number: number).uid("same")

    def test_a_python_source_continues_after_the_last_record_read(self, tmp_path):
        job = JobHarness(self.program())
        job.epoch(30)
        job.epoch(7)
        path = job.stop_with_savepoint(tmp_path)
        assert job.output == list(range(1, 38))
        with JobHarness(self.program(), from_savepoint=path) as job:
            assert job.run(10) == list(range(38, 101))

    @pytest.mark.parametrize(("before", "between", "after"), [(1, 4, 2), (4, 1, 3), (3, 5, 5)])
    def test_a_python_source_keeps_its_splits_at_another_parallelism(self, tmp_path, before, between, after):
        path, output = None, []
        for parallelism in (before, between):
            job = JobHarness(self.program(), parallelism=parallelism, from_savepoint=path)
            job.epoch(20)
            job.crash()
            job.epoch(13)
            path = job.stop_with_savepoint(tmp_path)
            output += job.output
        with JobHarness(self.program(), parallelism=after, from_savepoint=path) as job:
            output += job.run(10)
        assert sorted(output) == list(range(1, 101))

    def test_a_later_driver_of_a_restored_job_finds_the_source_position(self, tmp_path):
        job = JobHarness(self.program(), parallelism=3)
        job.epoch(40)
        path = job.stop_with_savepoint(tmp_path / "savepoints")
        output, storage = list(job.output), LocalStorage(tmp_path / "checkpoints")
        with JobHarness(self.program(), parallelism=2, storage=storage, from_savepoint=path) as job:
            job.epoch(10)
            output += job.output
        with JobHarness(self.program(), parallelism=2, storage=storage) as job:
            output += job.run()
        assert sorted(output) == list(range(1, 101))
