"""The events of a service, and clients that resume after their last one."""

from __future__ import annotations

import asyncio
import time

from penstock.cluster.events import EventLog, Events
from penstock.cluster.gateway import Event


def log(start: int, count: int) -> EventLog:
    """Return the log of a process that started at this microsecond."""
    made = EventLog(lambda: start)
    for number in range(count):
        made.add("job-state", str(number))
    return made


def seen(events: list[Event]) -> list[str]:
    return [each.job if each.kind != "gap" else f"gap after {each.details['after']}" for each in events]


def test_a_client_resumes_after_its_last_event():
    events = log(1000, 3).since(-1)
    assert [each.number for each in events] == [1001, 1002, 1003]
    assert seen(log(1000, 3).since(1001)) == ["1", "2"]
    assert log(1000, 3).since(1003) == []


def test_a_client_that_knows_events_of_an_earlier_process_gets_a_gap_and_all_events():
    assert seen(log(5000, 2).since(1003)) == ["gap after 1003", "0", "1"]


def test_a_client_that_knows_events_of_a_later_process_gets_a_gap_and_all_events():
    assert seen(log(1000, 2).since(9000)) == ["gap after 9000", "0", "1"]


def test_a_client_resumes_after_the_gap():
    for count in (0, 2):
        events = log(5000, count)
        (gap, *rest) = events.since(17)
        assert events.since(gap.number) == rest


def test_events_that_are_not_kept_are_a_gap():
    events = log(0, 1005)
    assert seen(events.since(4))[:2] == ["gap after 4", "5"]
    assert seen(events.since(5))[:1] == ["5"]
    assert seen(events.since(-1))[:1] == ["5"]


def test_a_slow_follower_learns_of_the_events_it_missed():
    async def follow() -> list[str]:
        events = Events()
        events.add("job-state", "first")
        follower = events.follow()
        found = [await anext(follower)]
        for number in range(2000):
            events.add("job-state", str(number))
        found += [await anext(follower) for _ in range(2)]
        assert found[1].details == {"after": str(found[0].number)}
        return [each.job or each.kind for each in found]

    assert asyncio.run(follow()) == ["first", "gap", "1000"]


def test_numbers_ascend_across_processes():
    first, second = EventLog(lambda: 1_000_000), EventLog(lambda: 1_000_004)
    for each in (first, first, first, second):
        each.add("leader")
    assert first.since(-1)[-1].number < second.since(-1)[0].number


def test_the_numbers_of_a_process_begin_at_its_start_in_microseconds():
    before = time.time_ns() // 1000
    log = EventLog()
    log.add("leader")
    assert before < log.since(-1)[0].number <= time.time_ns() // 1000 + 1
