"""A HybridSource reads its sources one after the other."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.common import SimpleStringSchema
from penstock.connectors.generated import NumberSequenceSource
from penstock.connectors.source import Source
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def read_from(source: Source[Any], positions: Any, ahead: Any) -> list[Any]:
    return [
        record
        for split, end in ahead.items()
        if positions.get(split) != end
        for record in source.read(split, positions.get(split), end)
    ]


def test_the_second_source_starts_when_the_first_has_ended() -> None:
    source = HybridSource.builder(NumberSequenceSource(1, 3)).add_source(NumberSequenceSource(10, 12)).build()
    positions = source.start(1)
    seen = []
    while (ahead := source.advance(positions, 2)) != positions:
        seen += [records] if (records := read_from(source, positions, ahead)) else []
        # The planner can be replaced between two epochs.
        source, positions = pickle.loads(pickle.dumps(source)), ahead
    assert [record for records in seen for record in records] == [1, 2, 3, 10, 11, 12]
    assert all(max(records) < 10 or min(records) >= 10 for records in seen)
    assert all(source.ends(split, position) for split, position in positions.items())
    assert source.bounded
    assert source.replayable


def test_files_are_read_before_the_topic_that_continues_them(kafka: Any, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("a\nb\n")
    topic = kafka.topic(1)
    kafka.send(topic, "c", "d")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    continued = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topics(topic)
        .set_value_only_deserializer(SimpleStringSchema())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .build()
    )
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(HybridSource.builder(files).add_source(continued).build(), source_name="all")
    with JobHarness(stream) as job:
        assert job.run() == ["a", "b", "c", "d"]


def test_an_unbounded_source_can_only_be_the_last() -> None:
    class Endless(NumberSequenceSource):
        bounded = False

    builder = HybridSource.builder(NumberSequenceSource(1, 2)).add_source(Endless(1, 2))
    assert not builder.build().bounded
    with pytest.raises(PenstockError, match="after Endless, which is unbounded"):
        builder.add_source(NumberSequenceSource(3, 4))
    with pytest.raises(PenstockError, match="needs sources, not int"):
        builder.add_source(1)  # type: ignore[arg-type]
