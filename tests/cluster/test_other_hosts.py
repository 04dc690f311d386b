"""JobManagers of other hosts as the leader knows them, with agents that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from penstock.cluster.connection import Connecting
from penstock.cluster.gateway import AttemptProcess, LogFile
from penstock.cluster.other_hosts import NoAgent, OtherHosts
from penstock.cluster.records import new_job_id
from penstock.cluster.supervision import Process

JOB = new_job_id()
Key = tuple[str, int]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.other_hosts._PERIOD_S", 0.005)
    monkeypatch.setattr("penstock.cluster.other_hosts._FRESH_S", 0.2)
    monkeypatch.setattr("penstock.cluster.other_hosts._ANSWER_S", 0.1)


class FakeAgents:
    """Agents at addresses, with the processes that each knows."""

    def __init__(self, **known: dict[Key, tuple[bool, bool]]) -> None:
        self.known = known
        """By address and attempt: whether the process is alive, and whether any remains."""
        self.asked: list[tuple[str, list[Key]]] = []
        self.hanging: set[str] = set()
        self.killed: list[tuple[str, Key]] = []
        self.files: dict[str, list[LogFile]] = {}

    def hosts(self, *names: str) -> OtherHosts:
        """Return hosts with these names, whose agents have the addresses `<name>` and `<name>2`."""
        return OtherHosts(self, lambda: {name: (name, f"{name}2") for name in names})

    def _of(self, address: str) -> dict[Key, tuple[bool, bool]]:
        if address not in self.known:
            raise NoAgent(f"{address} does not answer")
        return self.known[address]

    def connection(self, address: str, job_id: str, attempt: int) -> Connecting:
        raise NotImplementedError

    async def processes(self, address: str, attempts: Sequence[Key]) -> list[AttemptProcess]:
        self.asked.append((address, list(attempts)))
        while address in self.hanging:
            await asyncio.sleep(0.01)
        known = self._of(address)
        return [
            AttemptProcess(job=key[0], attempt=key[1], alive=known[key][0], remains=known[key][1])
            for key in attempts
            if key in known
        ]

    async def kill(self, address: str, job_id: str, attempt: int) -> bool:
        self._of(address)
        self.killed.append((address, (job_id, attempt)))
        return True

    async def logs(self, address: str, job_id: str) -> list[LogFile]:
        self._of(address)
        return self.files.get(address, [])


def run(others: OtherHosts, scenario: Coroutine[Any, Any, None]) -> None:
    async def started() -> None:
        others.start()
        try:
            await scenario
        finally:
            await others.close()

    asyncio.run(started())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def test_the_state_of_a_process_is_unknown_until_its_agent_has_answered() -> None:
    agents = FakeAgents(a={(JOB, 1): (True, True), (JOB, 2): (False, True)})
    others = agents.hosts("a")

    async def scenario() -> None:
        assert others.state("a", JOB, 1) is Process.UNKNOWN
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)
        await until(lambda: others.state("a", JOB, 2) is Process.DEAD)
        assert others.remains("a", JOB, 2)
        agents.known["a"][JOB, 1] = (False, False)
        await until(lambda: others.state("a", JOB, 1) is Process.DEAD)
        assert not others.remains("a", JOB, 1)

    run(others, scenario())


def test_all_processes_of_a_host_are_asked_for_in_one_request() -> None:
    agents = FakeAgents(a={})
    others = agents.hosts("a")

    async def scenario() -> None:
        for number in (1, 2, 3):
            others.state("a", JOB, number)
        await until(lambda: agents.asked)
        assert agents.asked[0] == ("a", [(JOB, 1), (JOB, 2), (JOB, 3)])

    run(others, scenario())


def test_processes_count_as_remaining_until_the_first_answer_and_not_on_a_host_without_agents() -> None:
    agents = FakeAgents(a={(JOB, 1): (False, False)})
    others = agents.hosts("a")

    async def scenario() -> None:
        assert others.remains("a", JOB, 1)
        assert not others.remains("b", JOB, 1)
        await until(lambda: not others.remains("a", JOB, 1))

    run(others, scenario())


@pytest.mark.parametrize("failure", ["refuses", "hangs", "knows nothing", "left"])
def test_a_process_is_unknown_again_when_its_agent_does_not_answer(failure: str) -> None:
    agents = FakeAgents(a={(JOB, 1): (True, True)})
    addresses = {"a": ("a",)}
    others = OtherHosts(agents, lambda: addresses)

    async def scenario() -> None:
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)
        match failure:
            case "refuses":
                del agents.known["a"]
            case "hangs":
                agents.hanging.add("a")
            case "knows nothing":
                agents.known["a"].clear()
            case "left":
                addresses.clear()
        await until(lambda: others.state("a", JOB, 1) is Process.UNKNOWN)
        # It does not hold up the next attempt either.
        assert not others.remains("a", JOB, 1)

    run(others, scenario())


def test_an_old_answer_does_not_count_while_the_next_one_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.other_hosts._ANSWER_S", 60.0)
    agents = FakeAgents(a={(JOB, 1): (True, True)})
    others = agents.hosts("a")

    async def scenario() -> None:
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)
        agents.hanging.add("a")
        await until(lambda: others.state("a", JOB, 1) is Process.UNKNOWN)
        assert not others.remains("a", JOB, 1)

    run(others, scenario())


def test_an_agent_that_hangs_does_not_delay_the_answers_of_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.other_hosts._ANSWER_S", 60.0)
    agents = FakeAgents(b={(JOB, 1): (True, True)})
    agents.hanging.add("a")
    others = agents.hosts("a", "b")

    async def scenario() -> None:
        others.state("a", JOB, 1)
        await until(lambda: agents.asked)
        await until(lambda: others.state("b", JOB, 1) is Process.ALIVE)

    run(others, scenario())


def test_the_second_agent_of_a_host_answers_if_the_first_one_does_not() -> None:
    agents = FakeAgents(a2={(JOB, 1): (True, True)})
    others = agents.hosts("a")

    async def scenario() -> None:
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)
        assert await asyncio.to_thread(others.kill, "a", JOB, 1)
        assert agents.killed == [("a2", (JOB, 1))]

    run(others, scenario())


def test_a_host_that_is_out_of_reach_is_reported_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    agents = FakeAgents()
    others = agents.hosts("a")

    async def scenario() -> None:
        def asked(times: int) -> bool:
            others.state("a", JOB, 1)
            return len(agents.asked) >= times

        await until(lambda: asked(6))
        agents.known["a2"] = {(JOB, 1): (True, True)}
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)

    with caplog.at_level("INFO", "penstock"):
        run(others, scenario())
    assert caplog.messages == [
        "JobManagers on host a are out of reach: a2 does not answer.",
        "JobManagers on host a are in reach.",
    ]


def test_agents_are_asked_as_long_as_the_supervisor_asks() -> None:
    agents = FakeAgents(a={(JOB, 1): (True, True)})
    others = agents.hosts("a")

    async def scenario() -> None:
        await until(lambda: others.state("a", JOB, 1) is Process.ALIVE)
        await until(lambda: not others._asked and not others._seen and not others._asking)
        assert others._wanted() == {}

    run(others, scenario())


def test_a_killed_process_is_dead_at_once_and_an_unreachable_one_is_not() -> None:
    agents = FakeAgents(a={(JOB, 1): (False, True)})
    others = agents.hosts("a", "b")

    async def scenario() -> None:
        assert await asyncio.to_thread(others.kill, "a", JOB, 1)
        assert others.state("a", JOB, 1) is Process.DEAD
        assert not await asyncio.to_thread(others.kill, "b", JOB, 1)
        assert not await asyncio.to_thread(others.kill, "nowhere", JOB, 1)

    run(others, scenario())


def test_logs_are_those_of_all_agents_that_answer() -> None:
    agents = FakeAgents(a={}, b2={})
    log = LogFile(name="1-jobmanager.log", size=1, modified_ms=1, url="http://a/x")
    agents.files = {"a": [log], "b2": []}
    others = agents.hosts("a", "b")

    async def scenario() -> None:
        assert await others.logs(JOB) == [("a", log)]

    run(others, scenario())


def test_every_process_elsewhere_is_unknown_if_agents_cannot_be_reached() -> None:
    others = OtherHosts(None, lambda: {"a": ("a",)})

    async def scenario() -> None:
        assert not others.remains("a", JOB, 1)
        await until(lambda: others._seen)
        assert others.state("a", JOB, 1) is Process.UNKNOWN
        assert not others.remains("a", JOB, 1)
        with pytest.raises(NoAgent, match="no Dispatcher runs on host a"):
            async with others.connection("a", JOB, 1):
                pass

    run(others, scenario())
