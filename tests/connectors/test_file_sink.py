"""FileSink by hand: rolling, buckets, names, attempts that race, commits that are repeated."""

import errno
import os
import re
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
    def test_on_every_checkpoint(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.run("a", "b").run("c").run()
        assert sorted(files(base).values()) == [b"a\nb\n", b"c\n"]
        assert job.states == [[]]
        assert files(base, hidden=True) == {}

    def test_keeps_a_part_open_over_epochs_and_shows_nothing_of_it(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a").run("b").run().run("c")
        assert files(base) == {}
        job.run("d", end=True)
        assert list(files(base).values()) == [b"a\nb\nc\nd\n"]
        assert files(base, hidden=True) == {}
        assert not os.path.exists(f"{base}/.penstock")

    def test_merges_the_chunks_of_a_part_that_is_open_for_long(self, base, monkeypatch):
        monkeypatch.setattr(writer, "_FEW", 3)
        job = Attempts(rows(base, TEXT, policy=default()))
        most = 0
        for number in range(40):
            job.run(number)
            chunks = decode_part(job.states[0][0]).chunks
            assert set(files(base, hidden=True)) == {chunk.path for chunk in chunks}
            most = max(most, len(chunks))
        # After 26 epochs, which is 222 in base three.
        assert most == 6
        job.run(end=True)
        assert list(files(base).values()) == ["".join(f"{number}\n" for number in range(40)).encode()]

    def test_by_size_in_the_middle_of_an_epoch(self, base):
        job = Attempts(rows(base, TEXT, policy=default(part_size=10)))
        job.run(*(f"{number:03}" for number in range(8)))
        # Three lines of four bytes reach ten bytes; the two that are left stay open.
        assert sorted(files(base).values()) == [b"000\n001\n002\n", b"003\n004\n005\n"]
        job.run("008", "009")
        assert sorted(files(base).values())[2:] == [b"006\n007\n008\n"]
        job.run(end=True)
        assert lines(base) == [f"{number:03}" for number in range(10)]

    def test_by_size_whatever_the_batches_are(self, base, monkeypatch):
        def contents(batch):
            monkeypatch.setattr(writer, "_BATCH", batch)
            where = f"{base}-{batch}"
            Attempts(rows(where, TEXT, policy=default(part_size=100))).run(*range(1200)).run(*range(99), end=True)
            return sorted(files(where).values())

        assert contents(1) == contents(7) == contents(512)
        assert len(contents(64)) > 40

    def test_by_age(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=1000)))
        job.run("a").run("b", after=999)
        assert files(base) == {}
        job.run("c", after=1)
        assert list(files(base).values()) == [b"a\nb\nc\n"]
        job.run("d", after=999)
        assert len(files(base)) == 1, "the next part is as old as its first epoch"

    def test_by_inactivity(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=1000)))
        job.run("a").run("b", after=999).run(after=999)
        assert files(base) == {}
        job.run(after=1)
        assert list(files(base).values()) == [b"a\nb\n"]

    @pytest.mark.parametrize("setting", [{"part_size": 0}, {"rollover_interval": -1}, {"inactivity_interval": 1.5}])
    def test_refuses_settings_that_make_no_sense(self, setting):
        with pytest.raises(PenstockError, match=f"{next(iter(setting))} must be a whole number above 0"):
            RollingPolicy.default_rolling_policy(**setting)

    def test_of_bulk_formats_is_on_checkpoints_only(self, base):
        builder = FileSink.for_bulk_format(base, BulkWriterFactory.parquet(Types.ROW_NAMED(["a"], [Types.INT()])))
        builder.with_rolling_policy(ON_CHECKPOINT)
        with pytest.raises(PenstockError, match="rolls on every checkpoint and no other way"):
            builder.with_rolling_policy(default())


class TestBuckets:
    def test_by_the_epochs_clock_in_a_zone(self, base):
        hours = BucketAssigner.date_time_bucket_assigner("'day='yyyy-MM-dd/HH'h'mm.ss.SSS", "GMT-08:00")
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, assigner=hours))
        job.now = 1_709_280_000_123
        job.run("a")
        assert os.path.dirname(next(iter(files(base)))) == "day=2024-03-01/00h00.00.123"

    def test_by_default_of_the_hour(self, base):
        sink = FileSink.for_row_format(base, TEXT).with_bucket_assigner(
            BucketAssigner.date_time_bucket_assigner(timezone_id="Asia/Kolkata")
        )
        job = Attempts(sink.build())
        job.now = 0
        job.run("a", end=True)
        assert [os.path.dirname(path) for path in files(base)] == ["1970-01-01--05"]

    def test_roll_each_by_itself(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=1000), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1", "a2").run("b2", after=1000)
        assert {os.path.dirname(path): data for path, data in files(base).items()} == {"a": b"a1\na2\n"}
        job.run(end=True)
        assert {os.path.dirname(path): data for path, data in files(base).items()}["b"] == b"b1\nb2\n"

    def test_of_a_class_that_looks_at_the_clock(self, base):
        class ByLength(BucketAssigner):
            def get_bucket_id(self, value, context):
                return f"{len(value)}/{context.current_processing_time()}"

        job = Attempts(rows(base, TEXT, assigner=ByLength()))
        job.now = 7
        job.run("aa", "b", end=True)
        assert {os.path.dirname(path) for path in files(base)} == {"2/7", "1/7"}

    def test_in_great_numbers_keep_few_files_open(self, base, monkeypatch):
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
    def test_outside_the_base_path_are_refused(self, base, bucket):
        job = Attempts(rows(base, TEXT, assigner=lambda value, ctx: bucket))
        with pytest.raises(PenstockError, match=r"Sink 'files' \(uid 'out'\): the bucket id .* is no directory below"):
            job.attempt(["a"])

    @pytest.mark.parametrize("pattern", ["yyyy-MMM", "EEE", "yy", "'day"])
    def test_of_patterns_that_are_not_understood(self, pattern):
        with pytest.raises(PenstockError, match="date_time_bucket_assigner"):
            BucketAssigner.date_time_bucket_assigner(pattern)

    def test_of_zones_that_are_not_there(self):
        with pytest.raises(PenstockError, match="no time zone 'Mars/Olympus'"):
            BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Olympus")

    def test_refuse_what_is_no_assigner(self, base):
        with pytest.raises(PenstockError, match="BucketAssigner or a function"):
            FileSink.for_row_format(base, TEXT).with_bucket_assigner("day")


class TestNames:
    def test_have_the_prefix_and_the_suffix(self, base):
        config = OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
        Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, config=config)).run("a")
        assert re.fullmatch(r"words-[0-9a-f]{16}-1-0-0\.txt", next(iter(files(base))))

    def test_differ_between_runs_sinks_subtasks_epochs_and_parts(self, base):
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

    def test_of_what_is_not_finished_are_skipped_by_other_readers(self, base):
        job = Attempts(rows(base, TEXT, policy=default(part_size=4), assigner=lambda value, ctx: f"b={value[0]}"))
        job.run("x\n1", "y")
        assert len(files(base, hidden=True)) == 1
        seen = dataset.dataset(base, format="csv", partitioning="hive")
        assert [os.path.relpath(path, base) for path in seen.files] == list(files(base))
        assert seen.to_table().to_pylist() == [{"x": 1, "b": "x"}]
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), base).build()
        assert [os.path.relpath(path, base) for path in source.start(1)] == list(files(base))

    @pytest.mark.parametrize("prefix", ["", ".x", "_x", "a/b", None, "x" * 101])
    def test_that_readers_would_skip_are_refused(self, prefix):
        with pytest.raises(PenstockError, match="the prefix"):
            OutputFileConfig.builder().with_part_prefix(prefix).build()

    def test_have_nothing_of_the_process_or_the_time(self, base):
        first = rows(base, TEXT, policy=default(part_size=20))
        reports = [
            Attempts(first).attempt(range(50)),
            Attempts(rows(base, TEXT, policy=default(20))).attempt(range(50)),
        ]
        assert reports[0] == reports[1]
        assert not any(str(os.getpid()) in path for path in files(base, hidden=True))


class TestAttempts:
    """Several at one epoch; the manifest takes one."""

    @pytest.mark.parametrize("policy", [ON_CHECKPOINT, default()], ids=["on checkpoint", "default"])
    def test_at_the_same_time_with_other_contents_do_not_touch_each_other(self, base, policy):
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

    def test_that_fail_leave_nothing_when_they_are_closed(self, base):
        sink = rows(base, TEXT)
        one = sink.create_writer(context())
        one.restore([])
        one.begin_epoch(writer.EpochInfo(LINEAGE, 1, 0))
        for number in range(2000):
            one.write(number)
        assert files(base, hidden=True)
        one.close()
        assert files(base, hidden=True) == {}

    def test_are_swept_when_a_new_driver_has_published(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.attempt(["lost with the driver"])
        Path(base, ".penstock", os.listdir(f"{base}/.penstock")[0], "1-0-7-999-abc.writing").write_text("half")
        chosen = job.attempt(["b"])
        later = job.attempt(["b", "c"])
        job.publish(chosen)
        job.commit()
        ahead = job.attempt(["ahead of the clean-up"])
        new_driver = rows(base, TEXT, policy=default())
        new_driver.clean_up(LINEAGE, job.epoch, job.states[0], job.context)
        kept = {chunk.path for state in [*job.states[0], *ahead[1]] for chunk in decode_part(state).chunks}
        assert set(files(base, hidden=True)) == kept
        assert len(kept) == 3
        assert later != chosen
        job.run("c", end=True)
        assert lines(base) == ["a", "b", "c"]

    def test_of_another_sink_in_the_directory_are_not_swept(self, base):
        one, other = Attempts(rows(base, TEXT, policy=default())), Attempts(rows(base, TEXT, policy=default()), uid="2")
        one.run("one")
        other.run("other")
        one.sink.clean_up(LINEAGE, 1, one.states[0], one.context)
        one.run(end=True)
        other.run(end=True)
        assert lines(base) == ["one", "other"]
        assert not os.path.exists(f"{base}/.penstock")

    def test_are_not_deleted_by_an_abort_since_another_may_have_made_the_same(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        failed = job.attempt(["a"])
        job.publish(job.attempt(["a"]))
        job.sink.abort(job.commits([failed]), job.context)
        job.commit()
        assert lines(base) == ["a"]


class TestCommits:
    def test_again_change_nothing(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=1)))
        job.run("a").run("b", after=5)
        before = files(base)
        job.commit(again=True)
        assert files(base) == before
        assert list(before.values()) == [b"a\nb\n"]

    def test_again_do_not_bring_back_what_a_consumer_took(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT)).run("a")
        os.unlink(os.path.join(base, *files(base)))
        job.commit(again=True)
        assert files(base) == {}

    def test_again_when_a_late_attempt_wrote_the_hidden_file_once_more(self, base):
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

    def test_that_find_the_records_gone_say_so(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.publish(job.attempt(["a"]))
        hidden = os.path.join(base, *files(base, hidden=True))
        os.unlink(hidden)
        with pytest.raises(StorageError, match=re.escape(hidden)):
            job.commit()

    def test_again_find_the_records_gone_say_so_if_no_commit_had_begun(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        job.publish(job.attempt(["a"]))
        hidden = os.path.join(base, *files(base, hidden=True))
        os.unlink(hidden)
        for again in (False, True, True):
            with pytest.raises(StorageError, match=re.escape(hidden)) as refused:
                job.commit(again)
            assert not refused.value.retryable

    def test_again_find_one_of_several_records_gone_and_show_none_of_them(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT, assigner=lambda value, ctx: value))
        job.publish(job.attempt(["a", "b", "c"]))
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[1]))
        with pytest.raises(StorageError, match="is gone"):
            job.commit(again=True)
        assert files(base) == {}

    def test_again_of_the_end_of_the_input_do_not_bring_back_what_a_consumer_took(self, base):
        job = Attempts(rows(base, TEXT, policy=default())).run("a").run("b", end=True)
        os.unlink(os.path.join(base, *files(base)))
        job.commit(again=True)
        assert files(base) == {}

    def test_keep_one_note_that_they_have_begun(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        for value in "abc":
            job.run(value)
        notes = job.storage.list("shown/")
        assert [int(name.split("/")[2]) for name in notes] == [job.epoch]

    def test_of_a_driver_that_died_leave_notes_that_the_next_one_removes(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT)).run("a")
        job.sink = rows(base, TEXT, policy=ON_CHECKPOINT)
        job.run("b").sink.clean_up(LINEAGE, job.epoch, [], job.context)
        notes = job.storage.list("shown/")
        assert [int(name.split("/")[2]) for name in notes] == [job.epoch]

    def test_never_overwrite_a_file(self, base):
        job = Attempts(rows(base, TEXT, policy=ON_CHECKPOINT))
        report = job.attempt(["a"])
        job.publish(report)
        final = Path(base, decode_prepared(report[0]).parts[0].final)
        final.write_text("someone else's")
        with pytest.raises(PenstockError, match="is not overwritten"):
            job.commit()
        assert final.read_text() == "someone else's"

    def test_delete_no_chunk_that_the_state_still_names(self, base):
        job = Attempts(rows(base, TEXT, policy=default(inactivity=10), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("b2", after=10)
        named = {chunk.path for state in job.states[0] for chunk in decode_part(state).chunks}
        assert set(files(base, hidden=True)) == named
        assert len(named) == 2

    def test_of_a_part_whose_chunk_is_gone_are_not_prepared(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        os.unlink(os.path.join(base, *files(base, hidden=True)))
        with pytest.raises(StorageError, match=r"\.chunk.*is gone"):
            job.run("b", end=True)

    @pytest.mark.parametrize("ends", [False, True])
    @pytest.mark.parametrize("pieces", [1, 2])
    def test_of_a_part_whose_piece_is_gone_are_refused_in_the_first_epoch(self, base, pieces, ends):
        job = Attempts(rows(base, TEXT, policy=default()))
        for _ in range(pieces):
            job.run("a")
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[-1]))
        with pytest.raises(StorageError, match=r"\.chunk.*is gone") as refused:
            job.attempt([], end=ends)
        assert not refused.value.retryable

    def test_of_a_part_whose_piece_was_cut_off_are_refused(self, base):
        job = Attempts(rows(base, TEXT, policy=default())).run("abc")
        os.truncate(os.path.join(base, *files(base, hidden=True)), 2)
        with pytest.raises(StorageError, match=r"\.chunk.*has 2 bytes and not 4"):
            job.attempt([], end=True)

    def test_of_a_part_whose_piece_goes_while_the_writer_lives_are_refused(self, base):
        job = Attempts(rows(base, TEXT, policy=default(rollover=10))).run("a")
        writer = job.sink.create_writer(context())
        for clock in (0, 20):
            writer.restore(job.states[0])
            writer.begin_epoch(EpochInfo(LINEAGE, 2, job.now + clock))
            if clock:
                os.unlink(os.path.join(base, *files(base, hidden=True)))
                with pytest.raises(StorageError, match="is gone"):
                    writer.prepare_commit()
            else:
                writer.prepare_commit()

    def test_of_a_cancelled_job_say_that_a_piece_is_gone(self, base):
        job = Attempts(rows(base, TEXT, policy=default(), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("a2")
        os.unlink(os.path.join(base, sorted(files(base, hidden=True))[-1]))
        with pytest.raises(StorageError, match="is gone"):
            job.sink.finish(LINEAGE, job.states[0], job.context)
        # What is there is shown all the same.
        assert list(files(base).values()) == [b"b1\n"]

    def test_of_a_cancelled_job_show_what_the_checkpoint_holds(self, base):
        job = Attempts(rows(base, TEXT, policy=default(), assigner=lambda value, ctx: value[0]))
        job.run("a1", "b1").run("a2")
        job.attempt(["a3, of no checkpoint"])
        for _ in range(2):
            job.sink.finish(LINEAGE, job.states[0], job.context)
            assert sorted(files(base).values()) == [b"a1\na2\n", b"b1\n"]
        assert files(base, hidden=True) == {}


class TestRescaling:
    def test_two_parts_of_one_bucket_in_one_subtask_stay_two(self, base):
        header = Encoder.csv(["n"], header=True)
        job = Attempts(rows(base, header, policy=default()))
        job.publish(job.attempt([(1,)], 0), job.attempt([(2,)], 1))
        job.commit()
        job.states = [[*job.states[0], *job.states[1]]]
        job.run((3,)).run(end=True)
        assert sorted(files(base).values()) == [b"n\n1\n3\n", b"n\n2\n"]

    def test_an_element_may_go_to_any_subtask(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.states = [[], job.states[0], []]
        job.publish(*(job.attempt([f"b{subtask}"], subtask) for subtask in range(3)))
        job.commit()
        job.publish(*(job.attempt([], subtask, end=True) for subtask in range(3)))
        job.commit()
        assert sorted(files(base).values()) == [b"a\nb1\n", b"b0\n", b"b2\n"]

    def test_a_part_begun_in_another_format_is_finished_as_it_is(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a")
        job.sink = rows(base, Encoder.json_lines(), policy=default())
        job.run("b")
        assert list(files(base).values()) == [b"a\n"]
        job.run(end=True)
        assert sorted(files(base).values()) == [b'"b"\n', b"a\n"]

    def test_a_part_begun_below_another_path_is_finished_there(self, base):
        job = Attempts(rows(base, TEXT, policy=default()))
        job.run("a").run("b")
        job.sink = rows(f"{base}-2", TEXT, policy=default())
        job.run("c", end=True)
        assert [list(files(where).values()) for where in (base, f"{base}-2")] == [[b"a\nb\n"], [b"c\n"]]


class TestPaths:
    def test_may_be_uris(self, base):
        assert rows(f"file://{base}/a%20b", TEXT).base_path == f"{base}/a%20b"
        assert rows(f"file:{base}", TEXT).base_path == base

    @pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs:///x", "file://host/x"])
    def test_of_other_file_systems_are_refused(self, path):
        with pytest.raises(PenstockError, match="only local paths and mounts shared by all hosts"):
            rows(path, TEXT)

    def test_that_cannot_be_written_are_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        job = Attempts(rows(f"{tmp_path}/file/out", TEXT))
        with pytest.raises(StorageError, match=rf"Sink 'files' \(uid 'out'\).*{tmp_path}/file"):
            job.attempt(["a"])

    @pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EIO", "ESTALE", "ETIMEDOUT"])
    def test_that_fail_for_a_moment_do_not_end_the_job(self, base, monkeypatch, code):
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

    def test_refuse_what_is_no_encoder(self, base):
        with pytest.raises(PenstockError, match="for_row_format needs an Encoder, not str"):
            FileSink.for_row_format(base, "text")
        with pytest.raises(PenstockError, match="for_bulk_format needs a BulkWriterFactory"):
            FileSink.for_bulk_format(base, TEXT)


class TestTypes:
    """The stream's declared type gives the columns, where the format has none."""

    KIND = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])

    def test_of_csv(self, base):
        sink = rows(base, Encoder.csv(header=True), policy=ON_CHECKPOINT)
        with pytest.raises(PenstockError, match=r"Encoder.csv has no columns.*output_type="):
            Attempts(sink).attempt([Row(1, "a")])
        Attempts(sink.for_type(self.KIND)).run(Row(1, "a"))
        assert list(files(base).values()) == [b"id,name\n1,a\n"]

    def test_of_parquet(self, base):
        sink = FileSink.for_bulk_format(base, BulkWriterFactory.parquet()).build()
        with pytest.raises(PenstockError, match="parquet has no columns"):
            Attempts(sink).attempt([Row(1, "a")])
        assert Attempts(sink.for_type(self.KIND)).attempt([Row(1, "a")])[0] is not None
