"""Records that a source cannot decode fail the job with a message, or go to a side output; none is lost."""

import json
from typing import Any

import pytest
from files_helpers import BASE, lines

from penstock.common import Duration, Encoder, Time, WatermarkStrategy
from penstock.connectors.dead_letters import UnreadableRecord
from penstock.connectors.source import Positions
from penstock.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import DeadLetter, Source
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError
from penstock.runtime.failures import Party, describe_failure
from penstock.runtime.moment import Timestamped
from penstock.testing import JobHarness

BROKEN = OutputTag("broken")


class Messages(Source):
    """JSON values in partitions, like a topic. With `gives_time`, each value is its own timestamp."""

    def __init__(self, *partitions: list[str], gives_time: bool = False) -> None:
        self.partitions = partitions
        self.gives_time = gives_time

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        ends = {str(number): len(messages) for number, messages in enumerate(self.partitions)}
        return ends if limit is None else {p: min(end, (positions.get(p) or 0) + limit) for p, end in ends.items()}

    def read(self, split: str, start: Any, end: Any) -> Any:
        for offset in range(start or 0, end):
            message = self.partitions[int(split)][offset]
            try:
                value = json.loads(message)
            except ValueError as error:
                value = self.unreadable(f"topic/{split}", f"offset {offset}", message, error)
            yield Timestamped(value, value) if self.gives_time and not isinstance(value, DeadLetter) else value

    def ends(self, split: str, position: Any) -> bool:
        return bool(position == len(self.partitions[int(split)]))


def environment():
    return StreamExecutionEnvironment.get_execution_environment()


def read(*partitions, env=None, strategy=None, **options):
    env = env or environment()
    stream = env.from_source(Messages(*partitions, **options), strategy, "messages", dead_letters=BROKEN)
    return stream, stream.get_side_output(BROKEN)


def seen(stream, letters):
    """Return a stream of (kind, value or position) for both streams."""
    return stream.map(lambda value: ("good", value)).union(letters.map(lambda letter: ("dead", letter.position)))


class TestWithoutLetters:
    def test_the_error_names_source_split_position_record_and_next_step(self):
        env = environment()
        stream = env.from_source(Messages(["1", "{oops"]), source_name="orders").uid("orders-uid")
        with pytest.raises(UnreadableRecord) as caught:
            JobHarness(stream).run()
        text = str(caught.value)
        assert "Source 'orders' (uid 'orders-uid') cannot read topic/0, offset 1: Expecting property name" in text
        assert "The record: {oops" in text
        assert "dead_letters=" in caught.value.fix
        assert caught.value.locations[0].file == __file__

    def test_a_long_record_is_truncated_in_the_error(self):
        with pytest.raises(UnreadableRecord, match=r"The record: x{200}… \(10,000 bytes\)"):
            JobHarness(environment().from_source(Messages(["x" * 10_000]))).run()

    def test_an_unreadable_record_fails_the_source_and_is_not_retried(self):
        with pytest.raises(UnreadableRecord) as caught:
            list(Messages(["x"]).read("0", None, 1))
        failure = describe_failure(caught.value, [], Party("orders", "orders-uid", is_source=True), 0)
        failed = UserFunctionFailed((failure,), 3)
        assert failed.context() == "Source 'orders' (uid 'orders-uid') failed in subtask 0 of epoch 3."
        # A retry would read the same record again.
        assert not failed.retryable

    def test_a_source_can_be_read_without_a_job(self):
        with pytest.raises(UnreadableRecord, match="Source 'Messages' cannot read topic/0, offset 0"):
            list(Messages(["x"]).read("0", None, 1))


class TestLetters:
    def test_a_letter_holds_the_raw_record_its_position_and_the_reason(self):
        stream, letters = read(["1", "{oops", "3"])
        stream.print()
        assert JobHarness(letters).run() == [
            DeadLetter(
                "messages",
                "topic/0",
                "offset 1",
                b"{oops",
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            )
        ]

    def test_the_main_stream_continues_without_letters(self):
        stream, letters = read(["1", "x", "2"], ["y", "3"])
        letters.print()
        assert sorted(JobHarness(stream).run()) == [1, 2, 3]

    def test_a_metric_of_the_source_counts_letters(self):
        stream, letters = read(["1", "x", "2"], ["y", "3"])
        letters.print()
        with JobHarness(stream) as job:
            job.run(1)
            (count,) = [value for name, value in job.metrics().items() if name.endswith(".numDeadLetters")]
            assert count == 2

    def test_a_letter_shows_invalid_utf_8_as_escapes(self):
        assert DeadLetter("s", "f", "line 1", b"caf\xe9", "not UTF-8").text == "caf\\xe9"

    @pytest.mark.parametrize("records", [1, 2, 3, None])
    def test_letters_do_not_depend_on_epoch_boundaries(self, records):
        job = JobHarness(seen(*read(["1", "x", "2", "y", "3"], ["z"])))
        found = sorted(job.run(records), key=str)
        assert found == [*(("dead", f"offset {n}") for n in (0, 1, 3)), ("good", 1), ("good", 2), ("good", 3)]

    @pytest.mark.parametrize("point", ["source.processed", "level1.snapshot", "driver.collected"])
    def test_each_letter_arrives_once_after_a_crash(self, point):
        stream, letters = read(["1", "x", "2", "y", "3"])
        job = JobHarness(seen(stream, letters).key_by(lambda each: each[0]).process(Pass()))
        job.epoch(2)
        job.crash_at(point)
        job.epoch(2)
        assert sorted(job.run(), key=str) == [
            ("dead", "offset 1"),
            ("dead", "offset 3"),
            ("good", 1),
            ("good", 2),
            ("good", 3),
        ]

    @pytest.mark.parametrize("chaining", [True, False])
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_letters_pass_through_exchanges(self, parallelism, chaining):
        env = environment()
        if not chaining:
            env.disable_operator_chaining()
        stream, letters = read(["1", "x", "2", "y"], ["z", "3"], env=env)
        stream.key_by(lambda value: value).process(Pass()).print()
        counted = letters.key_by(lambda letter: letter.split).process(Count())
        assert sorted(JobHarness(counted, parallelism=parallelism).run()) == [
            ("topic/0", 1),
            ("topic/0", 2),
            ("topic/1", 1),
        ]

    def test_several_operators_can_read_the_letters(self):
        stream, letters = read(["x", "1"])
        stream.print()
        both = letters.map(lambda letter: "a").union(letters.rebalance().map(lambda letter: "b"))
        assert sorted(JobHarness(both).run()) == ["a", "b"]

    def test_a_batch_job_collects_letters(self):
        env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
        job = JobHarness(seen(*read(["1", "x", "2"], env=env)))
        assert sorted(job.run(), key=str) == [("dead", "offset 1"), ("good", 1), ("good", 2)]

    def test_a_split_with_only_letters_is_processed(self):
        stream, letters = read(["x"] * 2500)
        stream.print()
        assert len(JobHarness(letters).run()) == 2500

    def test_letters_count_as_records_of_the_source(self):
        stream, letters = read(["1", "x"])
        letters.print()
        job = JobHarness(stream)
        statistics = job.epoch()
        assert statistics is not None
        assert statistics.records == 2

    def test_json_lines_preserve_all_fields_of_a_letter(self, tmp_path):
        stream, letters = read(["1", "x"])
        stream.print()
        sink = FileSink.for_row_format(str(tmp_path), Encoder.json_lines()).with_bucket_assigner(BASE).build()
        letters.sink_to(sink)
        JobHarness(stream.get_execution_environment()).run()
        (line,) = lines(tmp_path)
        assert json.loads(line) == {
            "source": "messages",
            "split": "topic/0",
            "position": "offset 1",
            "raw": "eA==",
            "reason": "Expecting value: line 1 column 1 (char 0)",
        }

    def test_a_csv_sink_writes_fields_of_a_letter_as_columns(self, tmp_path):
        stream, letters = read(["x"])
        stream.print()
        sink = FileSink.for_row_format(str(tmp_path), Encoder.csv(["position", "reason"])).with_bucket_assigner(BASE)
        letters.sink_to(sink.build())
        JobHarness(stream.get_execution_environment()).run()
        assert lines(tmp_path) == ["offset 0,Expecting value: line 1 column 1 (char 0)"]


class Pass(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        from penstock.common import Types
        from penstock.datastream.state import ValueStateDescriptor

        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


class Watermark(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)


class TestEventTime:
    @pytest.mark.parametrize("chaining", [True, False])
    def test_letters_are_available_after_watermarks_of_from_source(self, chaining):
        env = environment()
        if not chaining:
            env.disable_operator_chaining()
        stream, letters = read(["1000", "x", "2000"], env=env, strategy=MONOTONOUS)
        stream.print()
        assert [letter.position for letter in JobHarness(letters).run()] == ["offset 1"]

    @pytest.mark.parametrize("gives_time", [True, False])
    def test_a_letter_neither_advances_nor_holds_back_the_watermark(self, gives_time):
        strategy = None if gives_time else MONOTONOUS
        messages = ["1000", "x", "12000", "y", "25000"]
        stream, letters = read(messages, strategy=strategy, gives_time=gives_time)
        if gives_time:
            stream = stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
        windows = TumblingEventTimeWindows.of(Time.seconds(10))
        both = stream.map(lambda value: ("k", value)).union(
            stream.get_side_output(BROKEN).rebalance().map(lambda letter: ("k", letter)).filter(lambda pair: False)
        )
        summed = both.key_by(lambda pair: pair[0]).window(windows).reduce(lambda a, b: ("k", a[1] + b[1]))
        letters.print()
        job = JobHarness(summed)
        job.epoch()
        # Before the input has ended: the union does not wait for the letters.
        assert job.output == [("k", 1000), ("k", 12000)]
        assert job.end().output == [("k", 1000), ("k", 12000), ("k", 25000)]

    def test_a_letter_has_no_timestamp(self):
        stream, letters = read(["1000", "x", "2000"], strategy=MONOTONOUS)
        stream.print()
        ((letter, timestamp, watermark),) = JobHarness(letters.process(Watermark())).run()
        assert letter.position == "offset 1"
        assert timestamp is None
        assert watermark < 0

    def test_a_program_can_assign_timestamps_to_letters(self):
        stream, letters = read(["1000", "x", "y"], ["z"])
        stream.print()
        arrival = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(
            lambda letter, _: int(letter.position.split()[1]) * 20_000
        )
        windows = TumblingEventTimeWindows.of(Time.seconds(10))
        counted = (
            letters.assign_timestamps_and_watermarks(arrival)
            .map(lambda letter: (letter.split, 1))
            .key_by(lambda pair: pair[0])
            .window(windows)
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
        assert sorted(JobHarness(counted).run()) == [("topic/0", 1), ("topic/0", 1), ("topic/1", 1)]


class TestRefused:
    def test_unread_dead_letters_are_rejected(self):
        stream = environment().from_source(Messages(["1"]), source_name="orders", dead_letters=BROKEN)
        with pytest.raises(GraphError, match=r"'orders' .* nothing reads that side output.*get_side_output") as caught:
            JobHarness(stream)
        assert caught.value.locations[0].file == __file__

    def test_a_dead_letter_tag_must_be_an_output_tag(self):
        with pytest.raises(GraphError, match="dead_letters must be an OutputTag, not str"):
            environment().from_source(Messages(), dead_letters="broken")

    def test_an_unknown_side_output_of_a_source_is_rejected(self):
        stream, _ = read(["1"])
        with pytest.raises(
            GraphError, match=r"'messages' has no side output .*'other'.*: its dead letters are .*'broken'"
        ):
            stream.get_side_output(OutputTag("other"))
        with pytest.raises(GraphError, match=r"'Messages' has no side output .* dead_letters=OutputTag\('broken'\)"):
            environment().from_source(Messages(), MONOTONOUS).get_side_output(BROKEN)

    def test_a_source_that_drops_a_letter_fails(self):
        class Careless(Messages):
            def read(self, split, start, end):
                for record in super().read(split, start, end):
                    if not isinstance(record, DeadLetter):
                        yield record

        stream = environment().from_source(Careless(["1", "x"]), dead_letters=BROKEN)
        stream.get_side_output(BROKEN).print()
        with pytest.raises(PenstockError, match=r"'Careless' lost 1 dead letters of 0: its read\(\) must yield"):
            JobHarness(stream).run()
