"""The victim's program between the source and sink of a run; imported by every process of the job."""

from __future__ import annotations

import json
from typing import Any

from chaos import program
from chaos.ends.feeder import SPREAD
from chaos.program import SOURCE, Record, declare, write_files
from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

_OUT_OF_ORDER = Duration.of_millis(2 * SPREAD * program.record(1).timestamp)
"""How much later a record can arrive than one with a higher number from another writer to the same split."""
_RETRY_MS = 1000
"""Shorter than some server outages, so that both the connector's retries and the job's restarts are exercised."""


def build(env: StreamExecutionEnvironment, ends: dict[str, str], per_epoch: int, pace_ms: int) -> None:
    """Declare the program between these ends, as described by their `where`."""
    if ends["kind"] == "files":
        program.build(env, ends["total"], ends["out"], per_epoch, pace_ms)
    elif ends["kind"] == "redis":
        _from_redis(env, ends["address"], ends["streams"].split(), ends["out"])
    else:
        _between_tables(env, ends["address"])


def _from_redis(env: StreamExecutionEnvironment, address: str, streams: list[str], out: str) -> None:
    from penstock.datastream.connectors.redis import RedisStreamSource

    source = RedisStreamSource(address, *streams, decode=_entry, wait_for_streams=True, retry_for=_RETRY_MS)
    records = env.from_source(source, source_name="entries").uid(SOURCE)
    _, lines = declare(records, WatermarkStrategy.for_monotonous_timestamps())
    write_files(lines, out)


def _entry(entry: Any) -> Record:
    fields = entry.fields
    return Record(int(fields[b"number"]), int(fields[b"key"]), int(fields[b"at"]))


def _between_tables(env: StreamExecutionEnvironment, address: str) -> None:
    from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource

    retry_seconds = _RETRY_MS / 1000
    columns = ["number", "key", "at"]
    source = PostgresSource(address, "events", "id", columns=columns, records="tuple", retry_seconds=retry_seconds)
    rows = env.from_source(source, source_name="events").uid(SOURCE)
    times = WatermarkStrategy.for_bounded_out_of_orderness(_OUT_OF_ORDER)
    first, lines = declare(rows.map(Record._make).uid("records"), times)
    columns = ["what", "key", "second", "third", "tag"]
    results = PostgresSink(address, "results", columns=columns, retry_seconds=retry_seconds)
    lines.map(_row).uid("rows").sink_to(results).uid("results")
    counts = PostgresSink(address, "counts", columns=["key", "n"], key="key", retry_seconds=retry_seconds)
    first.filter(_is_record).map(_count).uid("numbers-of-keys").sink_to(counts).uid("counts")


def _row(line: str) -> tuple[Any, ...]:
    what, key, second, third, tag = json.loads(line)
    return what, key, second, json.dumps(third), tag


def _is_record(given: tuple[Any, ...]) -> bool:
    return bool(given[0] == "record")


def _count(given: tuple[Any, ...]) -> tuple[int, int]:
    """Return a key and the number of its records so far."""
    return given[1], given[3]
