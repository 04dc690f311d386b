"""Dead letters on Spark: from files and from a custom source, in epochs and in a batch."""

import gzip
import json

import pytest

from penstock.common import Encoder, Time, WatermarkStrategy
from penstock.datastream import OutputTag, RuntimeExecutionMode
from penstock.datastream.connectors import Source
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource, StreamFormat
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

BROKEN = OutputTag("broken")


class Messages(Source):
    """Numbers as text, in partitions."""

    def __init__(self, *partitions):
        self.partitions = partitions

    def advance(self, positions, limit):
        return {str(number): len(messages) for number, messages in enumerate(self.partitions)}

    def read(self, split, start, end):
        for offset in range(start or 0, end):
            message = self.partitions[int(split)][offset]
            try:
                yield int(message)
            except ValueError as error:
                yield self.unreadable(f"topic/{split}", f"offset {offset}", message, error)

    def ends(self, split, position):
        return position == len(self.partitions[int(split)])


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_dead_letters_are_separated_from_windows_of_good_records(make_env, mode):
    env = make_env(parallelism=2)
    env.set_runtime_mode(mode)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    stream = env.from_source(Messages(["1000", "x", "12000"], ["y"]), times, "numbers", dead_letters=BROKEN)
    letters = stream.get_side_output(BROKEN)
    counted = (
        stream.map(lambda value: 1)
        .window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: a + b)
        .map(lambda count: ("good", count))
    )
    with counted.union(letters.map(lambda letter: ("dead", letter.raw))).execute_and_collect() as results:
        assert sorted(results, key=str) == [("dead", b"x"), ("dead", b"y"), ("good", 1), ("good", 1)]


def test_dead_letters_of_files_are_written_to_files(make_env, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"n": 1}\n{"n": oops}\n{"n": 2}\n')
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"n": 3}\n' * 1000)[:-12])
    env = make_env()
    source = FileSource.for_record_stream_format(StreamFormat.json_lines(), str(folder)).build()
    stream = env.from_source(source, source_name="numbers", dead_letters=BROKEN).uid("numbers")
    where = BucketAssigner.base_path_bucket_assigner()
    for name, part in (("good", stream), ("dead", stream.get_side_output(BROKEN))):
        part.sink_to(
            FileSink.for_row_format(str(tmp_path / name), Encoder.json_lines()).with_bucket_assigner(where).build()
        ).uid(name)
    env.execute()
    good = [json.loads(line)["n"] for path in (tmp_path / "good").glob("part*") for line in path.open()]
    dead = [json.loads(line) for path in (tmp_path / "dead").glob("part*") for line in path.open()]
    assert sorted(set(good)) == [1, 2, 3]
    assert sorted((letter["source"], letter["split"].split("/")[-1]) for letter in dead) == [
        ("numbers", "a.jsonl"),
        ("numbers", "b.jsonl.gz"),
    ]


def test_an_unreadable_record_without_dead_letters_raises_with_source_position_and_user_line(make_env):
    env = make_env()
    env.from_source(Messages(["1", "oops"]), source_name="orders").uid("orders-uid").print()
    with pytest.raises(PenstockError) as caught:
        env.execute()
    text = str(caught.value)
    assert "Source 'orders' (uid 'orders-uid') cannot read topic/0, offset 1: invalid literal" in text
    assert "The record: oops" in text
    assert "dead_letters=" in caught.value.fix
    assert caught.value.locations[0].file == __file__
