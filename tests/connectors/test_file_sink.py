"""FileSink without a job: rolling, buckets, names, concurrent attempts and repeated commits."""

import errno
import os
import re
import time
from pathlib import Path

import pytest
from files_helpers import LINEAGE, Attempts, context, files, lines, rows
from pyarrow import dataset

from penstock.common import Encoder, Row, Types
from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.files import part_files, writer
from penstock.connectors.files.part_files import decode_part, decode_prepared
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from penstock.errors import PenstockError
from penstock.runtime.operators import EpochInfo
from penstock.state.storage import StorageError

TEXT = Encoder.simple_string_encoder()
ON_CHECKPOINT = RollingPolicy.on_checkpoint_rolling_policy()
NEVER = 10**12


def default(part_size=NEVER, rollover=NEVER, inactivity=NEVER):
    return RollingPolicy.default_rolling_policy(part_size, rollover, inactivity)


@pytest.fixture
def base(tmp_path):
    return str(tmp_path / "out")


class TestRolling:
    def test_the_on_checkpoint_policy_closes_every_part(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.run("a", "b").run("c").run()
        assert sorted(files(base).values()) == [b"a\nb\n", b"c\n"]
        assert job.states == [[]]
        assert files(base, hidden=True) == {}

    def test_an_open_part_spans_epochs_and_stays_invisible(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a").run("b").run().run("c")
        assert files(base) == {}
        job.run("d", end=True)
        assert list(files(base).values()) == [b"a\nb\nc\nd\n"]
        assert files(base, hidden=True) == {}
        assert not os.path.exists(f"{base}/.penstock")

    def test_chunks_of_a_long_open_part_are_merged(self, base, monkeypatch):
        monkeypatch.setattr(writer, "_FEW", 3)
        job = Attempts(rows(base, TEXT, policy=default()))
        most = 0
        for number in range(40):
            job.run(number)
            chunks = decode_part(job.states[0][0]).chunks
            assert set(files(base, hidden=True)) == {chunk.path for chunk in chunks}
            most = max(most, len(chunks))
        # After 26 epochs, 222 in base three.
        assert most == 6
        job.run(end=True)
        assert list(files(base).values()) == ["".join(f"{number}\n" for number in range(40)).encode()]

    def test_a_part_rolls_by_size_within_an_epoch(self, base):
        job = Attempts(rows(base, TEXT, policy=default(part_size=10)))
        job.run(*(f"{number:03}" for number in range(8)))
        # Three lines of four bytes exceed ten bytes; the last two lines stay in an open part.
        assert sorted(files(base).values()) == [b"000\n001\n002\n", b"003\n004\n005\n"]
        job.run("008", "009")
        assert sorted(files(base).values())[2:] == [b"006\n007\n008\n"]
        job.run(end=True)
        assert lines(base) == [f"{number:03}" for number in range(10)]

    def test_rolling_by_size_does_not_depend_on_batches(self, base, monkeypatch):
        def contents(batch):
            monkeypatch.setattr(writer, "_BATCH", batch)
            where = f"{base}-{batch}"
            Attempts(rows(where, TEXT, policy=default(part_size=100))).run(*range(1200)).run(*range(99), end=True)
            return sorted(files(where).values())

        assert contents(1) == contents(7) == contents(512)
        assert len(contents(64)) > 40

    def test_a_part_rolls_by_age(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=1000)))
        job.run("a").run("b", after=999)
        assert files(base) == {}
        job.run("c", after=1)
        assert list(files(base).values()) == [b"a\nb\nc\n"]
        job.run("d", after=999)
        assert len(files(base)) == 1, "the age of the next part counts from its first epoch"

    def test_a_part_rolls_by_inactivity(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=1000)))
        job.run("a").run("b", after=999).run(after=999)
        assert files(base) == {}
        job.run(after=1)
        assert list(files(base).values()) == [b"a\nb\n"]

    @pytest.mark.parametrize("setting", [{"part_size": 0}, {"rollover_interval": -1}, {"inactivity_interval": 1.5}])
    def test_invalid_rolling_settings_are_rejected(self, setting):
        with pytest.raises(PenstockError, match=f"{next(iter(setting))} must be a positive int"):
            RollingPolicy.default_rolling_policy(**setting)

    def test_bulk_formats_roll_only_on_checkpoints(self, base):
        builder = FileSink.for_bulk_format(base, BulkWriterFactory.parquet(Types.ROW_NAMED(["a"], [Types.INT()])))
        builder.with_rolling_policy(ON_CHECKPOINT)
        with pytest.raises(PenstockError, match="rolls on every checkpoint, because"):
            builder.with_rolling_policy(default())


class TestBuckets:
    def test_date_time_buckets_follow_processing_time_in_a_time_zone(self, base):
        hours = BucketAssigner.date_time_bucket_assigner("'day='yyyy-MM-dd/HH'h'mm.ss.SSS", "GMT-08:00")
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, assigner=hours))
        job.now = 1_709_280_000_123
        job.run("a")
        assert os.path.dirname(next(iter(files(base)))) == "day=2024-03-01/00h00.00.123"

    def test_default_date_time_buckets_are_hourly(self, base):
        sink = FileSink.for_row_format(base, TEXT).with_bucket_assigner(
            BucketAssigner.date_time_bucket_assigner(timezone_id="Asia/Kolkata")
        )
        job = Attempts(sink.build())
        job.now = 0
        job.run("a", end=True)
        assert [os.path.dirname(path) for path in files(base)] == ["1970-01-01--05"]

    def test_buckets_roll_independently(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=1000), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1", "a2").run("b2", after=1000)
        assert {os.path.dirname(path): data for path, data in files(base).items()} == {"a": b"a1\na2\n"}
        job.run(end=True)
        assert {os.path.dirname(path): data for path, data in files(base).items()}["b"] == b"b1\nb2\n"

    def test_a_bucket_assigner_class_can_read_processing_time(self, base):
        class ByLength(BucketAssigner):
            def get_bucket_id(self, value, context):
                return f"{len(value)}/{context.current_processing_time()}"

        job = Attempts(rows(base, TEXT, assigner=ByLength()))
        job.now = 7
        job.run("aa", "b", end=True)
        assert {os.path.dirname(path) for path in files(base)} == {"2/7", "1/7"}

    def test_many_buckets_keep_few_files_open(self, base, monkeypatch):
        monkeypatch.setattr(writer, "_WAITING", 100)
        most = []

        class Watched(part_files.Handles):
            def of(self, path):
                file = super().of(path)
                most.append(len(self._open))
                return file

        monkeypatch.setattr(writer, "Handles", lambda: Watched(limit=8))
        values = [f"{number % 150}-{number}" for number in range(1500)]
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, assigner=lambda value, ctx: value.partition("-")[0]))
        job.run(*values)
        assert len(files(base)) == 150
        assert lines(base) == sorted(values)
        assert max(most) == 8

    @pytest.mark.parametrize("bucket", ["../x", "/etc", "a//b", "a/../b", ".hidden", "a/_b", "x/", None, 3])
    def test_bucket_ids_outside_the_base_path_are_rejected(self, base, bucket):
        job = Attempts(rows(base, TEXT, assigner=lambda value, ctx: bucket))
        with pytest.raises(
            PenstockError, match=r"Sink 'files' \(uid 'out'\): the bucket id .* does not name a directory"
        ):
            job.attempt(["a"])

    @pytest.mark.parametrize("pattern", ["yyyy-MMM", "EEE", "yy", "'day"])
    def test_unsupported_date_patterns_are_rejected(self, pattern):
        with pytest.raises(PenstockError, match="date_time_bucket_assigner"):
            BucketAssigner.date_time_bucket_assigner(pattern)

    def test_unknown_time_zones_are_rejected(self):
        with pytest.raises(PenstockError, match="unknown time zone 'Mars/Olympus'"):
            BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Olympus")

    def test_an_object_that_is_not_an_assigner_is_rejected(self, base):
        with pytest.raises(PenstockError, match="BucketAssigner or a function"):
            FileSink.for_row_format(base, TEXT).with_bucket_assigner("day")


class TestNames:
    def test_part_names_have_the_configured_prefix_and_suffix(self, base):
        config = OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
        Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, config=config)).run("a")
        assert re.fullmatch(r"words-[0-9a-f]{16}-1-0-0\.txt", next(iter(files(base))))

    def test_part_names_are_unique_across_lineages_sinks_subtasks_and_epochs(self, base):
        sink = rows(base, TEXT, policy=default(part_size=1))
        for lineage in ("one", "two"):
            for uid in ("out", "other"):
                job = Attempts(sink, lineage, uid)
                for _ in range(2):
                    job.states = [[], [], []]
                    job.publish(*(job.attempt(["same", "same"], subtask) for subtask in range(3)))
                    job.commit()
        assert len(files(base)) == 2 * 2 * 2 * 3 * 2
        assert set(files(base).values()) == {b"same\n"}

    def test_other_readers_skip_unfinished_files(self, base):
        job = Attempts(rows(base, TEXT, policy=default(part_size=4), assigner=lambda value, ctx: f"b={value[0]}"))
        job.run("x\n1", "y")
        assert len(files(base, hidden=True)) == 1
        seen = dataset.dataset(base, format="csv", partitioning="hive")
        assert [os.path.relpath(path, base) for path in seen.files] == list(files(base))
        assert seen.to_table().to_pylist() == [{"x": 1, "b": "x"}]
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), base).build()
        assert [os.path.relpath(path, base) for path in source.start(1)] == list(files(base))

    @pytest.mark.parametrize("prefix", ["", ".x", "_x", "a/b", None, "x" * 101])
    def test_prefixes_that_readers_skip_are_rejected(self, prefix):
        with pytest.raises(PenstockError, match="the prefix"):
            OutputFileConfig.builder().with_part_prefix(prefix).build()

    def test_file_names_do_not_depend_on_process_or_time(self, base, monkeypatch):
        reports, names = [], []
        for each in (1_000_000, 2_000_000):
            monkeypatch.setattr(os, "getpid", lambda each=each: each)
            monkeypatch.setattr(time, "time", lambda each=each: float(each))
            reports.append(Attempts(rows(base, TEXT, policy=default(part_size=20))).attempt(range(50)))
            names.append(files(base, hidden=True).keys())
        assert reports[0] == reports[1]
        assert names[0] == names[1]


class TestAttempts:
    """Several attempts at one epoch, of which the manifest selects one."""

    @pytest.mark.parametrize("policy", [ON_CHECKPOINT, default()], ids=["on checkpoint", "default"])
    def test_concurrent_attempts_do_not_affect_each_other(self, base, policy):
        job = Attempts(rows(base, TEXT, policy=policy))
        job.run("before")
        chosen, same = job.attempt(["chosen"]), job.attempt(["chosen"])
        assert chosen == same
        late = job.attempt(["late"])
        job.publish(chosen)
        job.commit()
        job.run("after", end=True)
        assert lines(base) == ["after", "before", "chosen"]
        assert files(base, hidden=True) == {}
        assert late != chosen

    def test_a_closed_failed_attempt_leaves_no_files(self, base):
        sink = rows(base, TEXT)
        one = sink.create_writer(context())
        one.restore([])
        one.begin_epoch(writer.EpochInfo(LINEAGE, 1, 0))
        for number in range(2000):
            one.write(number)
        assert files(base, hidden=True)
        one.close()
        assert files(base, hidden=True) == {}

    def test_clean_up_removes_leftovers_of_earlier_attempts(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.attempt(["lost with the driver"])
        Path(base, ".penstock", os.listdir(f"{base}/.penstock")[0], "1-0-7-999-abc.writing").write_text("half")
        chosen = job.attempt(["b"])
        later = job.attempt(["b", "c"])
        job.publish(chosen)
        job.commit()
        ahead = job.attempt(["before the clean-up"])
        new_driver = rows(base, TEXT, policy=default())
        new_driver.clean_up(LINEAGE, job.epoch, job.states[0], job.context)
        kept = {chunk.path for state in [*job.states[0], *ahead[1]] for chunk in decode_part(state).chunks}
        assert set(files(base, hidden=True)) == kept
        assert len(kept) == 3
        assert later != chosen
        job.run("c", end=True)
        assert lines(base) == ["a", "b", "c"]

    def test_clean_up_keeps_files_of_another_sink(self, base):
        one, other = Attempts(rows(base, TEXT, policy=default())), Attempts(rows(base, TEXT, policy=default()), uid="2")
        one.run("one")
        other.run("other")
        one.sink.clean_up(LINEAGE, 1, one.states[0], one.context)
        one.run(end=True)
        other.run(end=True)
        assert lines(base) == ["one", "other"]
        assert not os.path.exists(f"{base}/.penstock")

    def test_abort_keeps_files_that_another_attempt_could_share(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        failed = job.attempt(["a"])
        job.publish(job.attempt(["a"]))
        job.sink.abort(job.commits([failed]), job.context)
        job.commit()
        assert lines(base) == ["a"]


class TestCommits:
    def test_a_repeated_commit_changes_nothing(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=1)))
        job.run("a").run("b", after=5)
        before = files(base)
        job.commit(again=True)
        assert files(base) == before
        assert list(before.values()) == [b"a\nb\n"]

    def test_a_repeated_commit_does_not_restore_consumed_parts(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT)).run("a")
        os.unlink(os.path.join(base, *files(base)))
        job.commit(again=True)
        assert files(base) == {}

    def test_a_repeated_commit_removes_a_hidden_file_of_a_late_attempt(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        report = job.attempt(["a"])
        job.publish(report)
        job.commit()
        job.epoch -= 1
        assert job.attempt(["a"]) == report
        job.epoch += 1
        job.commit(again=True)
        assert lines(base) == ["a"]
        assert files(base, hidden=True) == {}

    def test_a_commit_reports_a_missing_hidden_file(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.publish(job.attempt(["a"]))
        hidden = os.path.join(base, *files(base, hidden=True))
        os.unlink(hidden)
        with pytest.raises(StorageError, match=re.escape(hidden)):
            job.commit()

    def test_a_repeated_commit_reports_a_missing_file_if_no_commit_had_begun(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.publish(job.attempt(["a"]))
        hidden = os.path.join(base, *files(base, hidden=True))
        os.unlink(hidden)
        for again in (False, True, True):
            with pytest.raises(StorageError, match=re.escape(hidden)) as refused:
                job.commit(again)
            assert not refused.value.retryable

    def test_a_commit_with_one_missing_file_makes_no_part_visible(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, assigner=lambda value, ctx: value))
        job.publish(job.attempt(["a", "b", "c"]))
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[1]))
        with pytest.raises(StorageError, match="is missing"):
            job.commit(again=True)
        assert files(base) == {}

    def test_a_repeated_final_commit_does_not_restore_consumed_parts(self, base):
        job = Attempts(rows(base, TEXT, policy=default())).run("a").run("b", end=True)
        os.unlink(os.path.join(base, *files(base)))
        job.commit(again=True)
        assert files(base) == {}

    def test_commits_keep_one_note(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        for value in "abc":
            job.run(value)
        notes = job.storage.list("shown/")
        assert [int(name.split("/")[2]) for name in notes] == [job.epoch]

    def test_clean_up_removes_notes_of_a_dead_driver(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT)).run("a")
        job.sink = rows(base, TEXT, policy=ON_CHECKPOINT)
        job.run("b").sink.clean_up(LINEAGE, job.epoch, [], job.context)
        notes = job.storage.list("shown/")
        assert [int(name.split("/")[2]) for name in notes] == [job.epoch]

    def test_a_commit_never_overwrites_a_file(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        report = job.attempt(["a"])
        job.publish(report)
        final = Path(base, decode_prepared(report[0]).parts[0].final)
        final.write_text("another program's")
        with pytest.raises(PenstockError, match="and is not overwritten"):
            job.commit()
        assert final.read_text() == "another program's"

    def test_a_commit_keeps_chunks_that_the_state_refers_to(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=10), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("b2", after=10)
        named = {chunk.path for state in job.states[0] for chunk in decode_part(state).chunks}
        assert set(files(base, hidden=True)) == named
        assert len(named) == 2

    def test_a_missing_chunk_fails_the_end_of_input(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        os.unlink(os.path.join(base, *files(base, hidden=True)))
        with pytest.raises(StorageError, match=r"\.chunk.*is missing"):
            job.run("b", end=True)

    @pytest.mark.parametrize("ends", [False, True])
    @pytest.mark.parametrize("pieces", [1, 2])
    def test_a_missing_piece_fails_the_first_epoch(self, base, pieces, ends):
        job = Attempts(rows(base, TEXT, policy=default()))
        for _ in range(pieces):
            job.run("a")
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[-1]))
        with pytest.raises(StorageError, match=r"\.chunk.*is missing") as refused:
            job.attempt([], end=ends)
        assert not refused.value.retryable

    def test_a_truncated_piece_is_rejected(self, base):
        job = Attempts(rows(base, TEXT, policy=default())).run("abc")
        os.truncate(os.path.join(base, *files(base, hidden=True)), 2)
        with pytest.raises(StorageError, match=r"\.chunk.*has 2 bytes, expected 4"):
            job.attempt([], end=True)

    def test_a_piece_that_disappears_while_the_writer_runs_is_reported(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=10))).run("a")
        writer = job.sink.create_writer(context())
        for clock in (0, 20):
            writer.restore(job.states[0])
            writer.begin_epoch(EpochInfo(LINEAGE, 2, job.now + clock))
            if clock:
                os.unlink(os.path.join(base, *files(base, hidden=True)))
                with pytest.raises(StorageError, match="is missing"):
                    writer.prepare_commit()
            else:
                writer.prepare_commit()

    def test_finishing_a_cancelled_job_reports_a_missing_piece(self, base):
        job = Attempts(rows(base, TEXT, policy=default(), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("a2")
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[-1]))
        with pytest.raises(StorageError, match="is missing"):
            job.sink.finish(LINEAGE, job.states[0], job.context)
        # The other parts become visible.
        assert list(files(base).values()) == [b"b1\n"]

    def test_finishing_a_cancelled_job_commits_the_last_checkpoint(self, base):
        job = Attempts(rows(base, TEXT, policy=default(), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("a2")
        job.attempt(["a3, in no checkpoint"])
        for _ in range(2):
            job.sink.finish(LINEAGE, job.states[0], job.context)
            assert sorted(files(base).values()) == [b"a1\na2\n", b"b1\n"]
        assert files(base, hidden=True) == {}


class TestRescaling:
    def test_two_parts_of_one_bucket_stay_separate_after_rescaling(self, base):
        header = Encoder.csv(["n"], header=True)
        job = Attempts(rows(base, header, policy=default()))
        job.publish(job.attempt([(1,)], 0), job.attempt([(2,)], 1))
        job.commit()
        job.states = [[*job.states[0], *job.states[1]]]
        job.run((3,)).run(end=True)
        assert sorted(files(base).values()) == [b"n\n1\n3\n", b"n\n2\n"]

    def test_any_subtask_can_receive_any_state_element(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.states = [[], job.states[0], []]
        job.publish(*(job.attempt([f"b{subtask}"], subtask) for subtask in range(3)))
        job.commit()
        job.publish(*(job.attempt([], subtask, end=True) for subtask in range(3)))
        job.commit()
        assert sorted(files(base).values()) == [b"a\nb1\n", b"b0\n", b"b2\n"]

    def test_a_part_in_another_format_is_finished_unchanged(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.sink = rows(base, Encoder.json_lines(), policy=default())
        job.run("b")
        assert list(files(base).values()) == [b"a\n"]
        job.run(end=True)
        assert sorted(files(base).values()) == [b'"b"\n', b"a\n"]

    def test_a_part_below_another_base_path_is_finished_there(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a").run("b")
        job.sink = rows(f"{base}-2", TEXT, policy=default())
        job.run("c", end=True)
        assert [list(files(where).values()) for where in (base, f"{base}-2")] == [[b"a\nb\n"], [b"c\n"]]


class TestPaths:
    def test_a_base_path_can_be_a_file_uri(self, base):
        assert rows(f"file://{base}/a%20b", TEXT).base_path == f"{base}/a%20b"
        assert rows(f"file:{base}", TEXT).base_path == base

    @pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs:///x", "file://host/x"])
    def test_base_paths_of_other_file_systems_are_rejected(self, path):
        with pytest.raises(PenstockError, match="only local paths and shared mounts"):
            rows(path, TEXT)

    def test_an_unwritable_base_path_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        job = Attempts(rows(f"{tmp_path}/file/out", TEXT))
        with pytest.raises(StorageError, match=rf"Sink 'files' \(uid 'out'\).*{tmp_path}/file"):
            job.attempt(["a"])

    @pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EIO", "ESTALE", "ETIMEDOUT"])
    def test_transient_file_system_errors_are_retryable(self, base, monkeypatch, code):
        def failing(descriptor):
            raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT)).run("a")
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", failing)
            with pytest.raises(StorageError, match=re.escape(os.strerror(getattr(errno, code)))) as failed:
                job.attempt(["b"])
            assert failed.value.retryable
        job.publish(job.attempt(["b"]))
        with monkeypatch.context() as broken:
            broken.setattr(os, "rename", lambda *_: failing(0))
            with pytest.raises(StorageError) as failed:
                job.commit()
            assert failed.value.retryable
        job.commit(again=True)
        assert lines(base) == ["a", "b"]

    def test_an_object_that_is_not_an_encoder_is_rejected(self, base):
        with pytest.raises(PenstockError, match="for_row_format needs an Encoder, not str"):
            FileSink.for_row_format(base, "text")
        with pytest.raises(PenstockError, match="for_bulk_format needs a BulkWriterFactory"):
            FileSink.for_bulk_format(base, TEXT)


class TestTypes:
    """The stream's declared type defines the columns if the format has none."""

    KIND = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])

    def test_csv_columns_come_from_the_declared_type(self, base):
        sink = rows(base, Encoder.csv(header=True), policy=ON_CHECKPOINT)
        with pytest.raises(PenstockError, match=r"Encoder.csv has no columns.*output_type="):
            Attempts(sink).attempt([Row(1, "a")])
        Attempts(sink.for_type(self.KIND)).run(Row(1, "a"))
        assert list(files(base).values()) == [b"id,name\n1,a\n"]

    def test_parquet_columns_come_from_the_declared_type(self, base):
        sink = FileSink.for_bulk_format(base, BulkWriterFactory.parquet()).build()
        with pytest.raises(PenstockError, match="parquet has no columns"):
            Attempts(sink).attempt([Row(1, "a")])
        assert Attempts(sink.for_type(self.KIND)).attempt([Row(1, "a")])[0] is not None
