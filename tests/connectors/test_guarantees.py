"""A job is as good as its weakest part, and says which that is."""

import logging
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.connectors.driver_sinks import DiscardingSink
from penstock.connectors.generated import DataGeneratorSource
from penstock.connectors.guarantees import JobGuarantee, in_a_line, in_words
from penstock.connectors.sink import AT_LEAST_ONCE
from penstock.datastream import CheckpointingMode, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.guarantees import guarantee_of, log_guarantee

IN_FILES = {"execution.checkpointing.interval": "1 s", "state.checkpoints.dir": "file:///tmp/never-written"}


class Lines(DataGeneratorSource):
    replayable = False
    why = "whoever sent a line has forgotten it"


class Upserts(DiscardingSink):
    guarantee = AT_LEAST_ONCE
    why = "it writes at once"


def environment(settings: dict[str, str]) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


def told(env: StreamExecutionEnvironment) -> JobGuarantee:
    return guarantee_of("job", env._graph, env._physical(), env.get_configuration())


def test_exactly_once_is_every_part_at_its_best() -> None:
    env = environment(IN_FILES)
    env.from_sequence(1, 3).uid("numbers").sink_to(DiscardingSink()).uid("out")
    job = told(env)
    assert (job.guarantee, job.weakest) == ("exactly-once", [])
    assert in_a_line(job) == (
        "Job 'job' is exactly-once: every source can be read again, every sink shows a record once; checkpoints "
        "outlive the driver, and the next driver resumes from the last one."
    )


def test_the_weakest_sink_is_named_with_its_reason() -> None:
    env = environment(IN_FILES)
    numbers = env.from_sequence(1, 3)
    numbers.sink_to(DiscardingSink()).uid("good")
    numbers.sink_to(Upserts()).uid("weak")
    job = told(env)
    assert (job.guarantee, job.weakest) == ("at-least-once", ["weak"])
    assert in_a_line(job) == "Job 'job' is at-least-once, because of sink 'Upserts' (uid 'weak'): it writes at once."


def test_a_function_as_sink_is_called_again() -> None:
    env = environment(IN_FILES)
    env.from_sequence(1, 3).add_sink(lambda value: None).uid("call")
    assert (told(env).guarantee, told(env).weakest) == ("at-least-once", ["call"])


def test_what_cannot_be_read_again_is_lost() -> None:
    env = environment(IN_FILES)
    env.from_source(Lines(str)).uid("lines").sink_to(DiscardingSink())
    job = told(env)
    assert (job.guarantee, job.weakest) == ("at-most-once", ["lines"])
    assert "not replayable: whoever sent a line has forgotten it" in in_words(job)


def test_losing_here_and_repeating_there_is_no_guarantee() -> None:
    env = environment(IN_FILES)
    env.from_source(Lines(str)).uid("lines").sink_to(Upserts()).uid("weak")
    job = told(env)
    assert (job.guarantee, job.weakest) == ("none", ["lines", "weak"])
    assert in_a_line(job).startswith("Job 'job' gives no guarantee, because of source 'Lines' (uid 'lines'): whoever")


def test_without_checkpoints_a_job_begins_anew() -> None:
    env = environment({})
    env.from_sequence(1, 3).print()
    job = told(env)
    assert (job.guarantee, job.weakest) == ("at-least-once", ["checkpoints"])
    assert "execution.checkpointing.interval is not set" in job.reason


def test_without_checkpoints_nothing_comes_again_of_what_cannot_be_read_again() -> None:
    env = environment({})
    env.from_source(Lines(str)).uid("lines").sink_to(DiscardingSink())
    assert (told(env).guarantee, told(env).weakest) == ("at-most-once", ["lines"])


def test_checkpoints_in_the_drivers_memory_end_with_it() -> None:
    env = environment({"execution.checkpointing.interval": "1 s"})
    env.from_sequence(1, 3).print()
    job = told(env)
    assert (job.guarantee, job.weakest) == ("at-least-once", ["checkpoints"])
    assert "a job whose driver dies starts from scratch" in job.reason


def test_a_console_may_miss_what_was_complete_when_the_driver_died() -> None:
    env = environment(IN_FILES)
    env.from_sequence(1, 3).print().uid("console")
    assert (told(env).guarantee, told(env).weakest) == ("at-most-once", ["console"])


def test_the_mode_at_least_once_changes_only_sinks_that_go_by_it() -> None:
    env = environment(IN_FILES)
    env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    numbers = env.from_sequence(1, 3)
    numbers.sink_to(DiscardingSink()).uid("waits")
    assert told(env).guarantee == "exactly-once"
    numbers.print().uid("console")
    job = told(env)
    assert (job.guarantee, job.weakest) == ("at-least-once", ["console"])
    assert "execution.checkpointing.mode is AT_LEAST_ONCE" in job.reason


def test_a_batch_needs_no_checkpoints() -> None:
    env = environment({}).set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_sequence(1, 3).print()
    assert told(env).guarantee == "exactly-once"


def test_who_cannot_be_throttled_is_named() -> None:
    env = environment({})
    env.from_collection([1]).uid("list").print()
    env.from_sequence(1, 2).uid("numbers").print()
    sources = {source.uid: source.not_throttled for source in told(env).sources}
    assert sources["numbers"] == ""
    assert "divided into epochs" in sources["list"]
    assert "    cannot be throttled: it is divided into epochs" in in_words(told(env))


@pytest.mark.parametrize(("source", "level"), [(Lines(str), logging.WARNING), (DataGeneratorSource(str), logging.INFO)])
def test_the_log_warns_where_records_can_be_lost(source: Any, level: int, caplog: Any) -> None:
    env = environment(IN_FILES)
    env.from_source(source).uid("lines").sink_to(DiscardingSink())
    with caplog.at_level(logging.INFO, "penstock"):
        log_guarantee(told(env))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, in_a_line(told(env)))]
