"""The JobManagers of other hosts. The leader reaches them through a Dispatcher there, the agent of its host.

The supervisor asks twice per second for the state of each process, and must not wait for another host. It gets the last
answer of the agent; a task in the event loop asks the agent again as long as the supervisor does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.cluster.connection import Connecting, Connection
from penstock.cluster.gateway import AttemptProcess, LogFile
from penstock.cluster.supervision import Process
from penstock.errors import PenstockError

_PERIOD_S = 0.5
_ANSWER_S = 3.0
"""Maximum wait for an agent to describe processes, or to list logs."""
_FRESH_S = 5.0
"""How long an answer counts. Without a newer one, the state of the process is unknown."""
_KILL_S = 20.0
"""An agent needs up to 10 s to kill a process."""

_T = TypeVar("_T")
_logger = logging.getLogger("penstock")


class NoAgent(ConnectionError):
    """No Dispatcher on the host answers."""


class Agents(Protocol):
    """Sends requests to Dispatchers on other hosts. All methods raise NoAgent."""

    def connection(self, address: str, job_id: str, attempt: int) -> Connecting:
        """Return a connection to the JobManager of an attempt, through the Dispatcher at an address."""
        ...

    async def processes(self, address: str, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        """Return the state of attempts, without those that run elsewhere."""
        ...

    async def kill(self, address: str, job_id: str, attempt: int) -> bool:
        """Kill all processes of an attempt that has ended or is cancelled. Return whether none is left."""
        ...

    async def logs(self, address: str, job_id: str) -> list[LogFile]:
        """Return the log files of a job."""
        ...


class _Attempt(NamedTuple):
    host: str
    job_id: str
    number: int


class _Seen(NamedTuple):
    at: float
    state: Process
    remains: bool


class OtherHosts:
    """Agents answer between `start` and `close`. Other hosts are out of reach before."""

    def __init__(self, agents: Agents | None, addresses: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        """`addresses` returns those of all other Dispatchers by host, from memory."""
        self._agents, self._addresses = agents, addresses
        self._lock = threading.Lock()
        self._asked: dict[_Attempt, float] = {}
        """When the supervisor last asked for each attempt."""
        self._seen: dict[_Attempt, _Seen] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}
        """Why the agents of a host did not answer the last time; empty if one did."""

    def start(self) -> None:
        """Begin to ask agents, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._watching = self._loop.create_task(self._watch())

    async def close(self) -> None:
        """Stop asking agents."""
        tasks = [self._watching, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for any thread ------------------------------------------------------------------------------------------------

    def state(self, host: str, job_id: str, attempt: int) -> Process:
        """Return the last known state of the process that claimed an attempt, without waiting."""
        seen = self._last(_Attempt(host, job_id, attempt))
        return Process.UNKNOWN if seen is None else seen.state

    def remains(self, host: str, job_id: str, attempt: int) -> bool:
        """Return whether any process of an attempt is alive, without waiting.

        As long as the agent's first answer is due, the attempt counts as one with a process.
        """
        key = _Attempt(host, job_id, attempt)
        seen = self._last(key)
        if seen is not None:
            return seen.remains
        return key not in self._seen and bool(self._agents_of(host))

    def kill(self, host: str, job_id: str, attempt: int) -> bool:
        """Kill all processes of an attempt, and return whether none is left. Waits for the agent."""

        async def killed() -> bool:
            return await self._first(host, lambda agents, address: agents.kill(address, job_id, attempt))

        try:
            gone = asyncio.run_coroutine_threadsafe(killed(), self._loop).result(_KILL_S)
        except (OSError, TimeoutError, PenstockError) as error:
            _logger.warning("Attempt %d of job %s on host %s is not killed: %s", attempt, job_id, host, error)
            return False
        if gone:
            self._note(_Attempt(host, job_id, attempt), Process.DEAD, remains=False)
        return gone

    def _last(self, key: _Attempt) -> _Seen | None:
        now = time.monotonic()
        with self._lock:
            self._asked[key] = now
            seen = self._seen.get(key)
        return seen if seen is not None and now - seen.at < _FRESH_S else None

    def _note(self, key: _Attempt, state: Process, *, remains: bool) -> None:
        with self._lock:
            self._seen[key] = _Seen(time.monotonic(), state, remains)

    # -- in the event loop ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def connection(self, host: str, job_id: str, attempt: int) -> AsyncIterator[Connection]:
        """Connect to the JobManager of an attempt through an agent of its host. Raises NoAgent."""
        agents, (address, *_) = self._reached(host)
        async with agents.connection(address, job_id, attempt) as connection:
            yield connection

    async def logs(self, job_id: str) -> list[tuple[str, LogFile]]:
        """Return the log files of a job that other Dispatchers have, with the host of each."""
        asked = [(host, address) for host, addresses in self._addresses().items() for address in addresses]
        found = await asyncio.gather(*(self._logs_at(address, job_id) for _, address in asked))
        return [(host, log) for (host, _), logs in zip(asked, found, strict=True) for log in logs]

    async def _logs_at(self, address: str, job_id: str) -> list[LogFile]:
        try:
            return [] if self._agents is None else await asyncio.wait_for(self._agents.logs(address, job_id), _ANSWER_S)
        except (OSError, TimeoutError, PenstockError) as error:
            _logger.info("The logs of job %s at %s are not listed: %s", job_id, address, error)
            return []

    async def _watch(self) -> None:
        while True:
            for host, attempts in self._wanted().items():
                if host not in self._asking:
                    task = self._asking[host] = self._loop.create_task(self._ask(host, attempts))
                    task.add_done_callback(partial(self._answered, host))
            await asyncio.sleep(_PERIOD_S)

    def _answered(self, host: str, _: object) -> None:
        del self._asking[host]

    def _wanted(self) -> dict[str, list[_Attempt]]:
        """Return the attempts to ask for, by host, and forget those that the supervisor has stopped asking for."""
        wanted: dict[str, list[_Attempt]] = {}
        since = time.monotonic() - _FRESH_S
        with self._lock:
            for key in [key for key, at in self._asked.items() if at < since]:
                del self._asked[key]
                self._seen.pop(key, None)
            for key in self._asked:
                wanted.setdefault(key.host, []).append(key)
        return wanted

    async def _ask(self, host: str, attempts: Sequence[_Attempt]) -> None:
        given = [(each.job_id, each.number) for each in attempts]
        try:
            ask = self._first(host, lambda agents, address: agents.processes(address, given))
            answer = await asyncio.wait_for(ask, _ANSWER_S)
        except (OSError, TimeoutError, PenstockError) as error:
            answer = []
            self._report(host, str(error) or type(error).__name__)
        else:
            self._report(host, "")
        found = {(each.job, each.attempt): each for each in answer}
        for key in attempts:
            process = found.get((key.job_id, key.number))
            if process is None:
                self._note(key, Process.UNKNOWN, remains=False)
            else:
                self._note(key, Process.ALIVE if process.alive else Process.DEAD, remains=process.remains)

    def _report(self, host: str, problem: str) -> None:
        if problem == self._problems.get(host, ""):
            return
        self._problems[host] = problem
        if problem:
            _logger.warning("JobManagers on host %s are out of reach: %s.", host, problem)
        else:
            _logger.info("JobManagers on host %s are in reach.", host)

    def _agents_of(self, host: str) -> Sequence[str]:
        return () if self._agents is None else self._addresses().get(host, ())

    def _reached(self, host: str) -> tuple[Agents, Sequence[str]]:
        addresses = self._agents_of(host)
        if self._agents is None or not addresses:
            raise NoAgent(f"no Dispatcher runs on host {host}")
        return self._agents, addresses

    async def _first(self, host: str, ask: Callable[[Agents, str], Coroutine[Any, Any, _T]]) -> _T:
        """Ask the agents of a host until one answers. Raises NoAgent."""
        agents, addresses = self._reached(host)
        for address in addresses[:-1]:
            try:
                return await ask(agents, address)
            except NoAgent:
                continue
        return await ask(agents, addresses[-1])
