"""Random programs with event time, with random epoch boundaries, crashes, rescales and restores.

A program is a random graph of sources, assigners in any position, exchanges, branches, side outputs and unions. It ends
in windows, timers, or functions that show timestamps. A run is a random list of epochs, crashes, rescales and restores
from a savepoint, at parallelism 1 to 4. The harness checks after each epoch that no watermark moved backwards.

There are two classes of programs:

* *Covered*: the bound of every assigner covers all disorder that can reach it. No record is late, regardless of how
  channels interleave, and every window and timer fires once, with all its records. Results then do not depend on the
  order between channels: windows return their records sorted, and every other result comes from a single record. The
  results, as a multiset, therefore equal those of one epoch at parallelism 1. The disorder of a source is at most
  `DISORDER` within a channel, and an exchange keeps the order of one channel. Behind that first exchange, or behind a
  union, records of several channels mix over the length of an epoch, so an assigner there has a bound as long as the
  input.

* *Late*: bounds are smaller than the disorder, streams have idle timeouts, and the clock advances. Which records are
  late then depends on how channels interleave. However, a record is late only if the watermark of the operator that it
  reached has passed its window, and each record that reaches a window appears exactly once, in a result or as late.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.testing import JobHarness

STEP, DISORDER = 10, 40
EVERYTHING = 1_000_000
"""A bound longer than any input."""
LATENESS = 25
WINDOWS = {
    "tumbling": TumblingEventTimeWindows.of(50),
    "sliding": SlidingEventTimeWindows.of(60, 30),
    "sessions": EventTimeSessionWindows.with_gap(25),
}


# -- programs ----------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One call on a stream; `inputs` are indexes of streams created before."""

    call: str
    inputs: tuple[int, ...]
    shift: int = 0
    bound: int = 0
    idle: int | None = None
    parallelism: int | None = None


@dataclass
class Program:
    sources: int
    steps: list[Step]
    ends: list[tuple[str, int]]
    """The kind of end, and the index of its stream."""
    records: list[list[tuple[str, int, str, int]]] = field(default_factory=list)
    """For each source: (source, number, key, time)."""


class Split(ProcessFunction):
    """Sends records with an odd number to a side output."""

    def __init__(self, tag):
        self.tag = tag

    def process_element(self, value, ctx):
        before = ctx.timestamp()
        yield value if value[1] % 2 == 0 else (self.tag, value)
        assert ctx.timestamp() == before


class Show(ProcessFunction):
    def __init__(self, end):
        self.end = end

    def process_element(self, value, ctx):
        yield self.end, "record", value, ctx.timestamp()


class Timers(KeyedProcessFunction):
    def __init__(self, end):
        self.end = end

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)

    def on_timer(self, timestamp, ctx):
        yield self.end, "timer", ctx.get_current_key(), timestamp


class Fired(ProcessWindowFunction):
    def __init__(self, end):
        self.end = end

    def process(self, key, context, elements):
        window = context.window()
        yield self.end, "window", key, window.start, window.end, sorted(elements)


class Late(ProcessFunction):
    """Chained to the window operator: it sees the watermark that the record met there."""

    def __init__(self, end):
        self.end = end

    def process_element(self, value, ctx):
        yield self.end, "late", value, ctx.timestamp(), ctx.timer_service().current_watermark()


def by_key(value):
    return value[2]


def same(value):
    return value


def strategy(step):
    made = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(step.bound))
    made = made.with_timestamp_assigner(lambda value, timestamp, shift=step.shift: value[3] + shift)
    return made if step.idle is None else made.with_idleness(Duration.of_millis(step.idle))


def build(program) -> Any:
    """Return the union of all results of the program."""
    env = StreamExecutionEnvironment.get_execution_environment()
    streams = [env.from_collection([]).uid(f"source {number}") for number in range(program.sources)]
    for number, step in enumerate(program.steps):
        stream = streams[step.inputs[0]]
        uid = f"step {number}"
        tag = OutputTag(uid)
        if step.call == "map":
            made = stream.map(same)
        elif step.call == "assign":
            made = stream.assign_timestamps_and_watermarks(strategy(step))
        elif step.call == "split":
            made = stream.process(Split(tag))
        elif step.call == "union":
            made = stream.union(*(streams[each] for each in step.inputs[1:])).map(same)
        elif step.call == "key_by":
            made = stream.key_by(by_key).map(same)
        else:
            made = getattr(stream, step.call)().map(same)
        made.uid(uid)
        if step.parallelism is not None:
            made.set_parallelism(step.parallelism)
        streams.append(made)
        if step.call == "split":
            streams.append(made.get_side_output(tag))
    results = []
    for number, (end, place) in enumerate(program.ends):
        stream, uid = streams[place], f"end {number}"
        if end == "show":
            results.append(stream.process(Show(number)).uid(uid))
        elif end == "timers":
            results.append(stream.key_by(by_key).process(Timers(number)).uid(uid))
        else:
            kind, _, lateness = end.partition(" ")
            tag = OutputTag(uid)
            windows = stream.key_by(by_key).window(WINDOWS[kind]).side_output_late_data(tag)
            if lateness:
                windows = windows.allowed_lateness(LATENESS)
            fired = windows.process(Fired(number)).uid(uid)
            results += [fired, fired.get_side_output(tag).process(Late(number)).uid(f"late {number}")]
    return results[0].union(*results[1:]) if len(results) > 1 else results[0]


EXCHANGES = ("rebalance", "shuffle", "key_by", "rescale")


class Growing:
    """A program under construction, with the properties of each of its streams."""

    def __init__(self, draw, covered):
        self.draw, self.covered = draw, covered
        self.sources = draw(st.integers(1, 3))
        self.steps: list[Step] = []
        self.timed = [False] * self.sources
        self.ordered = [True] * self.sources
        """Whether an assigner there receives records in the order of one source."""
        self.direct = [True] * self.sources
        """Whether it is still in the chain of its source."""
        self.parallelism: list[int | None] = [None] * self.sources

    def grow(self, call, *inputs):
        """Add a step, and return the index of the stream that it creates."""
        place = inputs[0]
        # A step that needs no exchange is chained to its predecessor.
        step = Step(call, inputs, parallelism=self.parallelism[place])
        timed, ordered, direct = self.timed[place], self.ordered[place], self.direct[place]
        if call == "assign":
            step.shift = self.draw(st.sampled_from([0, 0, 7, -13]))
            if self.covered:
                step.bound = DISORDER if ordered else EVERYTHING
            else:
                step.bound = self.draw(st.sampled_from([0, 10, DISORDER]))
                step.idle = self.draw(st.sampled_from([None, None, 500]))
            timed = True
        elif call == "union":
            ordered, direct, step.parallelism = False, False, None
        elif call in EXCHANGES:
            ordered, direct = ordered and direct, False
            step.parallelism = self.draw(st.sampled_from([None, None, 1, 2, 3]))
        self.steps.append(step)
        made = len(self.timed)
        outputs = 2 if call == "split" else 1
        self.timed += [timed] * outputs
        self.ordered += [ordered] * outputs
        self.direct += [direct] * outputs
        self.parallelism += [step.parallelism] * outputs
        return made

    def stamp(self, source):
        """Assign timestamps early, as for most streams: in the chain of their source or behind an exchange."""
        place = source
        if self.draw(st.booleans()):
            place = self.grow(self.draw(st.sampled_from(EXCHANGES)), place)
        place = self.grow("assign", place)
        return self.grow("map", place) if self.draw(st.booleans()) else place

    def anything(self):
        place = self.draw(st.integers(0, len(self.timed) - 1))
        call = self.draw(st.sampled_from(["map", "assign", "split", "union", "union", *EXCHANGES]))
        others = [each for each in range(len(self.timed)) if self.timed[each] == self.timed[place]]
        more = self.draw(st.lists(st.sampled_from(others), min_size=1, max_size=2)) if call == "union" else []
        self.grow(call, place, *more)

    def with_timestamps(self):
        return [place for place, timed in enumerate(self.timed) if timed]


@st.composite
def programs(draw, covered):
    growing = Growing(draw, covered)
    stamped = [growing.stamp(source) for source in range(growing.sources) if draw(st.sampled_from([True, True, False]))]
    if len(stamped) > 1 and draw(st.booleans()):
        growing.grow("union", *stamped)
    for _ in range(draw(st.integers(0, 5))):
        growing.anything()
    if not any(growing.timed):
        growing.stamp(0)
    kinds = [f"{kind}{lateness}" for kind in WINDOWS for lateness in ("", " late")]
    ends = []
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(growing.with_timestamps()[-4:]))
        ends.append((draw(st.sampled_from([*kinds, "tumbling", "timers", "show"] if covered else kinds[:4])), place))
    if draw(st.booleans()):
        ends.append(("show", draw(st.integers(0, len(growing.timed) - 1))))
    program = Program(growing.sources, growing.steps, ends)
    noise = DISORDER // 2
    for source in range(growing.sources):
        lots = draw(
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(-noise, noise), st.integers(0, 5)),
                min_size=4,
                max_size=14,
            )
        )
        # Sources that are far behind the others make them wait longer.
        time, records = 100 + draw(st.sampled_from([0, 0, 300, 2000])), []
        for number, (key, off, pause) in enumerate(lots):
            time += STEP * pause
            records.append((f"s{source}", number, key, time + off))
        program.records.append(records)
    return program


# -- runs --------------------------------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.just(("nothing", None)),
    st.just(("crash", None)),
    st.tuples(st.just("crash at"), st.sampled_from(["source.processed", "driver.collected", "driver.committed"])),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
    st.tuples(st.just("clock"), st.sampled_from([100, 600])),
    st.tuples(st.just("partitions"), st.integers(1, 3)),
)
TAKEN = st.tuples(*[st.integers(0, 4)] * 3)
"""Number of records of each source in an epoch."""
RUNS = st.tuples(st.integers(1, 4), st.lists(st.tuples(TAKEN, ACTIONS), min_size=3, max_size=10))


def in_one_epoch(program):
    with JobHarness(build(program)) as job:
        for source, records in enumerate(program.records):
            job.push(*records, source=f"source {source}")
        job.epoch()
        return job.end().output


def cut(program, run, directory):
    """Return the results of a run: its epochs, and the action after each of them."""
    parallelism, epochs = run
    rest = [list(records) for records in program.records]
    output = []
    clock = 1000
    in_source = all(step.call not in EXCHANGES for step in program.steps)
    job = JobHarness(build(program), parallelism=parallelism)
    job.set_clock(clock)
    try:
        for sizes, (action, what) in epochs:
            for source, (records, size) in enumerate(zip(rest, sizes)):
                job.push(*records[:size], source=f"source {source}")
                del records[:size]
            if action == "crash at":
                job.crash_at(what)
                job.epoch()
            job.epoch()
            if action == "crash":
                job.crash()
            elif action == "rescale" and any(
                not chain.own_parallelism for chain in job._graph.chains if chain.level > 0
            ):
                job.rescale(what)
            elif action == "clock":
                clock += what
                job.set_clock(clock)
            elif action == "partitions" and in_source:
                for source in range(program.sources):
                    job.set_partitions(what, source=f"source {source}")
            elif action == "restore":
                path = job.savepoint(directory)
                output += job.output
                job.close()
                job = JobHarness(build(program), parallelism=what, from_savepoint=path)
                job.set_clock(clock)
        for source, records in enumerate(rest):
            job.push(*records, source=f"source {source}")
        return output + job.end().output
    finally:
        job.close()


def check_covered(program, run, directory):
    expected = in_one_epoch(program)
    assert [row for row in expected if row[1] == "late"] == []
    output = cut(program, run, directory)
    assert [row for row in output if row[1] == "late"] == []
    assert Counter(map(repr, output)) == Counter(map(repr, expected))


def check_late(program, run, directory):
    output = cut(program, run, directory)
    for end, (kind, _) in enumerate(program.ends):
        rows = [row for row in output if row[0] == end]
        late = [row[2:] for row in rows if row[1] == "late"]
        lateness = LATENESS if kind.endswith("late") else 0
        for _, timestamp, watermark in late:
            assert timestamp + lateness <= watermark
        if not kind.startswith("tumbling"):
            continue
        for _, timestamp, watermark in late:
            assert timestamp // 50 * 50 + 49 + lateness <= watermark
        # A window that fires again contains its earlier records and more.
        contents = {row[2:5]: row[5] for row in rows if row[1] == "window"}
        arrived = [value for values in contents.values() for value in values] + [value for value, *_ in late]
        assert Counter(arrived) == Counter(reaching(program, end))


def reaching(program, end):
    """Return the records that reach an end, with repetitions."""
    streams = [list(records) for records in program.records]
    for step in program.steps:
        given_ = [record for place in step.inputs for record in streams[place]]
        if step.call == "split":
            streams += [[r for r in given_ if r[1] % 2 == 0], [r for r in given_ if r[1] % 2]]
        else:
            streams.append(given_)
    return streams[program.ends[end][1]]


def checked(check, covered, examples):
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(program=programs(covered), run=RUNS)
    def test(program, run, tmp_path_factory):
        check(program, run, tmp_path_factory.mktemp("savepoints"))

    return test


test_a_program_without_late_records_has_the_same_results_however_it_runs = checked(check_covered, True, 30)
test_a_record_is_late_only_behind_the_watermark_it_meets = checked(check_late, False, 30)

test_many_programs_without_late_records_have_the_same_results_however_they_run = pytest.mark.long(
    checked(check_covered, True, 350)
)
test_many_records_are_late_only_behind_the_watermark_they_meet = pytest.mark.long(checked(check_late, False, 350))
