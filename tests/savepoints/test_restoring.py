"""A restored job has the saved state: at another parallelism, on another backend, from another directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from savepoint_jobs import by_first, environment, numbers, remembered, sums

import penstock
from penstock.common import Types
from penstock.common.time import Duration, Time
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem", "rocksdb"]


class TestAtAnotherParallelism:
    @pytest.mark.parametrize(("before", "after"), [(3, 4), (4, 2), (1, 13), (13, 1)])
    def test_keys_keep_their_state_at_another_parallelism(self, tmp_path, before, after):
        keys = range(42)
        job = JobHarness(sums(), parallelism=before, max_parallelism=13)
        for _ in range(10):
            job.push(*((key, key * 100) for key in keys)).epoch()
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(sums(), parallelism=after, max_parallelism=13, from_savepoint=path) as job:
            assert job.states("sum") == {key: key * 1000 for key in keys}
            for _ in range(5):
                job.push(*((key, key * 100) for key in keys)).epoch()
            assert job.states("sum") == {key: key * 1500 for key in keys}

    def test_state_survives_repeated_rescaling(self, tmp_path):
        path, expected = None, 0
        for parallelism in (15, 77, 15):
            job = JobHarness(sums(), parallelism=parallelism, max_parallelism=128, from_savepoint=path)
            job.push(*((key, 1) for key in range(300))).epoch()
            job.push(*((key, 2) for key in range(300))).epoch()
            expected += 3
            assert job.states("sum") == dict.fromkeys(range(300), expected)
            path = job.stop_with_savepoint(tmp_path)


class TestOnAnotherBackend:
    @pytest.mark.parametrize("after", BACKENDS)
    @pytest.mark.parametrize("before", BACKENDS)
    def test_a_moved_savepoint_restores_all_state_on_any_backend(self, tmp_path, before, after):
        job = JobHarness(remembered(), parallelism=2, backend=before)
        for number in range(5):
            job.push(*((key, number) for key in "abc")).epoch()
        moved = tmp_path / "elsewhere" / "renamed"
        shutil.copytree(job.stop_with_savepoint(tmp_path / "savepoints"), moved)
        shutil.rmtree(tmp_path / "savepoints")
        with JobHarness(remembered(), parallelism=3, backend=after, from_savepoint=str(moved)) as job:
            # Lists are stored by checkpoint number: if numbers started over, new elements would sort before the others.
            for number in range(5, 12):
                job.push(*((key, number) for key in "abc")).epoch()
            job.lose_replicas()
            job.crash()
            assert job.states("values") == {key: list(range(12)) for key in "abc"}
            assert job.states("seen") == dict.fromkeys("abc", dict.fromkeys(range(12), 1))

    @pytest.mark.parametrize(("before", "after"), [("filesystem", "rocksdb"), ("rocksdb", "filesystem")])
    def test_another_process_restores_a_moved_savepoint(self, tmp_path, before, after):
        with JobHarness(remembered(), parallelism=2, backend=before) as job:
            job.push(*((key, number) for key in "abc" for number in range(3))).epoch()
            made = Path(job.stop_with_savepoint(tmp_path / "savepoints"))
        made.rename(tmp_path / "moved")
        program = f"""
from penstock.testing import JobHarness
from savepoint_jobs import remembered
with JobHarness(remembered(), parallelism=5, backend={after!r}, from_savepoint={str(tmp_path / "moved")!r}) as job:
    job.push(("a", 3)).epoch()
    assert job.states("values") == {{"a": [0, 1, 2, 3], "b": [0, 1, 2], "c": [0, 1, 2]}}, job.states("values")
"""
        paths = [str(Path(__file__).parent), str(Path(penstock.__file__).parents[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_a_job_without_records_can_be_saved(self, tmp_path):
        path = JobHarness(sums()).stop_with_savepoint(tmp_path)
        with JobHarness(sums(), from_savepoint=path) as job:
            job.push(("a", 1)).epoch()
            assert job.states("sum") == {"a": 1}


class TestALiveJob:
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_a_job_continues_and_its_savepoint_stays_unchanged(self, tmp_path, backend):
        with JobHarness(remembered(), backend=backend) as job:
            job.push(("a", 1), ("b", 2)).epoch()
            path = job.savepoint(tmp_path)
            for number in range(30):
                job.push(("a", number), ("c", number)).epoch()
            job.crash()
            assert len(job.state("values", "a")) == 31
        with JobHarness(remembered(), from_savepoint=path) as job:
            assert job.states("values") == {"a": [1], "b": [2]}

    def test_checkpoint_files_are_kept_while_a_savepoint_is_made(self, tmp_path):
        storage = LocalStorage(tmp_path / "checkpoints")
        eager = Settings(base_bytes=0, asynchronous=False)
        with JobHarness(remembered(), backend="filesystem", storage=storage, settings=eager) as job:
            job.push(*((key, 0) for key in range(50))).epoch()
            with job._driver.pinned_last() as (manifest, _):
                for number in range(40):
                    job.push(*((key, number) for key in range(50))).epoch()
                assert f"manifests/{manifest.id:012d}" in storage.list("manifests/")
            for number in range(20):
                job.push((1, number)).epoch()
            assert f"manifests/{manifest.id:012d}" not in storage.list("manifests/")

    def test_a_restored_job_recovers_keeps_few_files_and_can_be_saved_again(self, tmp_path):
        job = JobHarness(sums(), parallelism=2)
        for _ in range(20):
            job.push(("a", 1), ("b", 1)).epoch()
        path = job.stop_with_savepoint(tmp_path / "first")
        storage = LocalStorage(tmp_path / "checkpoints")
        job = JobHarness(sums(), parallelism=3, backend="filesystem", storage=storage, from_savepoint=path)
        for _ in range(60):
            job.push(("a", 1)).epoch()
            job.crash()
        assert job.checkpoint == 80
        # No manifest of the first run is left.
        assert storage.list("manifests/")[0] > "manifests/000000000019"
        assert job.states("sum") == {"a": 80, "b": 20}
        path = job.stop_with_savepoint(tmp_path / "second")
        with JobHarness(sums(), from_savepoint=path) as job:
            assert job.states("sum") == {"a": 80, "b": 20}


class TestTime:
    def test_timers_fire_in_the_restored_job(self, tmp_path):
        class Alarm(KeyedProcessFunction):
            def process_element(self, value, ctx):
                ctx.timer_service().register_processing_time_timer(value[1])

            def on_timer(self, timestamp, ctx):
                yield ctx.get_current_key(), timestamp

        def program():
            return by_first(numbers(environment())).process(Alarm()).uid("alarm")

        job = JobHarness(program(), parallelism=2)
        job.set_clock(1000).push(("a", 5000), ("b", 7000)).epoch()
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(program(), parallelism=5, from_savepoint=path) as job:
            assert job.next_wakeup == 5000
            job.set_clock(5000)
            assert job.output == [("a", 5000)]
            job.set_clock(9000)
            assert job.output == [("a", 5000), ("b", 7000)]

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_windows_continue_and_event_time_does_not_go_back(self, tmp_path, backend):
        def program():
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
            timed = numbers(environment()).assign_timestamps_and_watermarks(strategy).uid("times")
            windows = by_first(timed).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
            return windows.reduce(lambda one, other: (one[0], one[1] + other[1])).uid("windows")

        job = JobHarness(program(), parallelism=2)
        job.push(("a", 10), ("b", 20), ("a", 150), ("b", 160)).epoch()
        assert sorted(job.output) == [("a", 10), ("b", 20)]
        watermark = job.watermark
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(program(), parallelism=3, backend=backend, from_savepoint=path) as job:
            assert job.watermark == watermark
            job.push(("a", 50)).epoch()
            assert job.output == []
            job.push(("a", 170), ("c", 250)).epoch()
            assert sorted(job.output) == [("a", 320), ("b", 160)]

    def test_draining_fires_all_timers_before_the_savepoint(self, tmp_path):
        class Late(KeyedProcessFunction):
            def process_element(self, value, ctx):
                ctx.timer_service().register_event_time_timer(10**15)

            def on_timer(self, timestamp, ctx):
                yield "fired"

        stream = by_first(numbers(environment())).process(Late()).uid("late")
        job = JobHarness(stream)
        job.push(("a", 1), timestamp=5).epoch()
        job.stop_with_savepoint(tmp_path, drain=True)
        assert job.output == ["fired"]

    def test_restored_values_expire_by_their_original_time(self, tmp_path):
        class WithTimeToLive(KeyedProcessFunction):
            def open(self, runtime_context):
                descriptor = ValueStateDescriptor("kept", Types.INT())
                ttl = StateTtlConfig.new_builder(Duration.of_millis(1000)).cleanup_full_snapshot().build()
                descriptor.enable_time_to_live(ttl)
                self.kept = runtime_context.get_state(descriptor)

            def process_element(self, value, ctx):
                self.kept.update(value[1])

        def program():
            return by_first(numbers(environment())).process(WithTimeToLive()).uid("kept")

        job = JobHarness(program()).set_clock(10_000)
        job.push(("old", 1)).epoch()
        job.set_clock(10_700).push(("young", 2)).epoch()
        job.set_clock(11_100).push(("new", 3)).epoch()
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(program(), from_savepoint=path) as job:
            job.set_clock(11_100)
            assert job.states("kept") == {"young": 2, "new": 3}
            job.set_clock(11_800)
            assert job.states("kept") == {"new": 3}
