"""The Dispatcher: accepts programs and jobs, supervises them while it leads, and answers for them.

It runs in one event loop; a thread supervises, and blocking calls run in others. It executes no code of users.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.cluster.agent import HostAgent, log_files, logs_of_all
from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.disposal import trigger_disposal
from penstock.cluster.events import Events
from penstock.cluster.gateway import (
    ClusterState,
    Conflict,
    Event,
    LogFile,
    NotLeading,
    RunRequest,
    StoredProgram,
    Timeout,
)
from penstock.cluster.high_availability import coordination_of
from penstock.cluster.housekeeping import Housekeeping
from penstock.cluster.inspection import inspect, remove_left_inspections
from penstock.cluster.job_table import JobTable
from penstock.cluster.last_operations import last_operation
from penstock.cluster.launcher import LocalLauncher
from penstock.cluster.leadership import BecomeLeader, Instruction, StepDown
from penstock.cluster.leftovers import remove_leftovers
from penstock.cluster.order import Order
from penstock.cluster.orders import job_defaults, order_for
from penstock.cluster.other_hosts import Agents, OtherHosts
from penstock.cluster.programs import Programs
from penstock.cluster.records import JobView, Records, UnknownJob
from penstock.cluster.submissions import Submissions
from penstock.cluster.supervision import Policy
from penstock.cluster.supervisor import Supervisor
from penstock.common.options.service import (
    HEARTBEAT_TIMEOUT,
    MAX_STARTS,
    REST_STORE_DURATION,
    REST_TIMEOUT,
    START_TIMEOUT,
)
from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import Answer, Cancel, Operable, Poll, Request, Trigger
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import Operations
from penstock.errors import PenstockError
from penstock.state.storage import StorageError

_TICK_S = 0.5
_PAUSE_S = 0.005
"""Between two jobs. Without it, supervision of many jobs is a burst in which requests wait for this thread: with 50
jobs on a busy machine, it doubles the 99th percentile of their latency.
"""
_FIRST_S = 10.0
"""How long the start waits until all jobs are found."""
_PROBE_S = 5.0
"""How often a Dispatcher checks whether it can write records."""
_RESULT_SHOWN_S = 5.0
"""How long the result of an operation is held back until the job is shown with its effect."""
_INSPECTIONS = 4
"""Programs that are inspected at the same time: each takes a process, as jobs do, but no limit of jobs counts it."""
_INSPECTION_WAIT_S = 5.0
"""How long a request waits until another inspection has ended. Together, they end before its client gives up."""
_NO_LEADER = "No Dispatcher leads at the moment."
_ADOPTS = "The Dispatcher reads the records of the jobs."

_logger = logging.getLogger("penstock")


class Dispatcher:
    """Implements `Gateway` for all jobs of a cluster. Methods run in the event loop that called `start`."""

    def __init__(self, settings: Mapping[str, str], agents: Agents | None = None) -> None:
        """`agents` sends requests to the Dispatchers of other hosts; without it, they are not reached."""
        self._settings = dict(settings)
        self._agents = agents
        self.directory = ClusterDirectory.configured(settings)
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self.closing = asyncio.Event()
        self._found_all = asyncio.Event()
        """Set once the jobs were found in the current turn."""
        self._operations = Operations(REST_STORE_DURATION.read(settings) / 1000)
        self._inspections = asyncio.Semaphore(_INSPECTIONS)
        self._events = Events()
        self._draining = False
        self._storage_problem = ""
        """Why the records cannot be written; empty if they can."""
        self._next_probe = 0.0
        self._adopt = threading.Event()
        self._turn = 0
        """How often this Dispatcher has stepped down."""
        self._adopted_turn = self._shown_turn = -1
        """The turn in which it adopted the jobs, and in which requests find them."""
        self._closed = threading.Event()

    async def start(self, address: str) -> None:
        """Begin to supervise. `address` is where clients and other Dispatchers reach the service."""
        self._loop = asyncio.get_running_loop()
        self._address = address
        self.directory.create()
        remove_left_inspections(self.directory.root)
        self._storage = self.directory.storage(self._settings)
        await asyncio.to_thread(self._storage.check)
        self._records = Records(self._storage)
        self._programs = Programs(self._records)
        self._coordination = coordination_of(self._settings, self._storage)
        self._agent = HostAgent(self._records, self.directory)
        self._others = OtherHosts(self._agents, self._coordination.agents)
        self._others.start()
        self._jobs = JobTable(self._records.history, self._events, self._others)
        self._supervisor = Supervisor(
            leader=self.name,
            records=self._records,
            launcher=LocalLauncher(self._others),
            policy=Policy(
                start_timeout_ms=START_TIMEOUT.read(self._settings),
                silent_timeout_ms=HEARTBEAT_TIMEOUT.read(self._settings),
            ),
            most_starts=MAX_STARTS.read(self._settings),
            order=self._order,
            heard_ms=self._jobs.heard_ms,
            has_started=self._jobs.has_started,
            present=self._present,
            ask_to_cancel=self._ask_to_cancel,
            changed=lambda view: self._in_loop(self._jobs.changed, view),
            broken=lambda job_id, problem: self._in_loop(self._jobs.cannot_read, job_id, problem),
            clean_up=self._clean_up,
            can_act=lambda: self._coordination.leading and not self._closed.is_set(),
            now_ms=now_ms,
        )
        self._housekeeping = Housekeeping(
            settings=self._settings,
            directory=self.directory,
            coordination=self._coordination,
            records=self._records,
            programs=self._programs,
            jobs=self._jobs,
            supervisor=self._supervisor,
            in_loop=self._in_loop,
        )
        self._submissions = Submissions(
            settings=self._settings,
            coordination=self._coordination,
            records=self._records,
            programs=self._programs,
            jobs=self._jobs,
            supervisor=self._supervisor,
            in_loop=self._in_loop,
        )
        await asyncio.to_thread(self._coordination.start, address, self._on_instruction)
        self._thread = threading.Thread(target=self._supervise, name="penstock-supervisor", daemon=True)
        self._thread.start()
        if self._coordination.leading:
            # Without others, it leads at once. If the records cannot be read, it answers nevertheless, with 503.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._found_all.wait(), _FIRST_S)

    async def close(self) -> None:
        """Stop supervising. Jobs keep running."""
        self._closed.set()
        await asyncio.to_thread(self._coordination.close)
        await asyncio.to_thread(self._thread.join)
        self._supervisor.close()
        await self._jobs.close()
        await self._others.close()
        self._events.close()

    # -- supervision ---------------------------------------------------------------------------------------------------

    def _on_instruction(self, instruction: Instruction) -> None:
        match instruction:
            case BecomeLeader():
                _logger.info("Dispatcher %s leads.", self.name)
                self._in_loop(self._jobs.follow_all)
                self._adopt.set()
            case StepDown():
                _logger.warning("Dispatcher %s no longer leads.", self.name)
                self._adopt.clear()
                self._turn += 1
                self._supervisor.forget_all()
                self._in_loop(self._jobs.leave_all)
                self._in_loop(self._found_all.clear)
        self._in_loop(self._events.add, "leader", "", {"leading": str(self._coordination.leading).lower()})

    def _supervise(self) -> None:
        """The thread of the supervisor."""
        while not self._closed.is_set():
            self._probe_storage()
            try:
                if self._adopt.is_set() and self._coordination.leading:
                    self._adopt_jobs()
                if self._adopted and self._coordination.leading:
                    self._supervisor.tick(pause=lambda: self._closed.wait(_PAUSE_S))
                    self._housekeeping.sweep()
                self._housekeeping.sweep_host()
            except Exception as error:  # the service must survive it, and try again
                known = isinstance(error, (PenstockError, OSError))
                _logger.error("Supervision failed, and is tried again: %s", error, exc_info=not known)
            self._closed.wait(_TICK_S)

    def _probe_storage(self) -> None:
        """Find out whether records can be written: a full disk shows in writes only."""
        if time.monotonic() < self._next_probe:
            return
        self._next_probe = time.monotonic() + _PROBE_S
        try:
            # By host, not by Dispatcher: each start has another name, and would leave another file.
            self._storage.write(f"probes/{socket.gethostname()}", str(now_ms()).encode())
            problem = ""
        except (StorageError, OSError) as error:
            problem = f"The records in {self._storage.where} cannot be written: {error}"
        if problem != self._storage_problem:
            _logger.warning("%s", problem or "The records can be written again.")
        self._storage_problem = problem

    def _adopt_jobs(self) -> None:
        # Cleared first: the leadership can be lost and won again while the records are read.
        self._adopt.clear()
        turn = self._turn
        try:
            self._housekeeping.adopt()
        except BaseException:
            self._adopt.set()
            raise
        self._adopted_turn = turn
        # In the event loop, after the jobs: a request would not find those that are not in the table yet.
        self._in_loop(self._show_all, turn)

    def _show_all(self, turn: int) -> None:
        self._shown_turn = turn
        if self._shows_all:
            self._found_all.set()

    @property
    def _shows_all(self) -> bool:
        """Whether requests find all jobs that were adopted in the current turn."""
        return self._shown_turn == self._turn

    @property
    def _adopted(self) -> bool:
        """Whether the jobs were adopted in the current turn."""
        return self._adopted_turn == self._turn

    def _clean_up(self, view: JobView) -> None:
        """Remove the leftovers of a job that has ended. Its records stay as long as the history."""
        remove_leftovers(view, self._settings)
        with suppress(NotLeading):
            self._coordination.remove_job(view.submission.id)

    def _in_loop(self, work: object, *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work, *arguments)  # type: ignore[arg-type]

    def _order(self, job_id: str, attempt: int, finalize: bool) -> Order:
        return order_for(self._settings, self.directory, job_id, attempt, finalize)

    def _present(self) -> set[tuple[str, int]]:
        try:
            return self._coordination.living_job_managers()
        except CoordinationUnavailable:
            return set()

    def _ask_to_cancel(self, job_id: str, attempt: int) -> None:
        async def ask() -> None:
            try:
                await self.ask(job_id, Cancel())
            except PenstockError as error:
                # It reads the request in its records too, and is killed otherwise.
                _logger.info("Attempt %d of job %s does not answer the request to cancel: %s", attempt, job_id, error)

        asyncio.run_coroutine_threadsafe(ask(), self._loop)

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    @property
    def agent(self) -> HostAgent:
        return self._agent

    def state(self) -> ClusterState:
        leading = self._coordination.leading
        problem = self._storage_problem or self._coordination.problem
        if not problem and leading and not self._shows_all:
            problem = _ADOPTS
        elif not problem and not leading and self._coordination.leader_address() is None:
            problem = _NO_LEADER
        ready = not problem and not self._draining
        leader = self._coordination.leader_address() or ""
        return ClusterState(leading=leading, ready=ready, draining=self._draining, problem=problem, leader=leader)

    def leader(self) -> str | None:
        if self._coordination.leading:
            return None
        address = self._coordination.leader_address()
        if address is not None and address != self._address:
            return address
        if self._adopted:
            # The connection to ZooKeeper is interrupted: reads are answered, and nothing is changed.
            return None
        raise NotLeading(_NO_LEADER, fix="Try again in a few seconds.")

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> Sequence[JobSnapshot]:
        self._check_shows_all()
        return self._jobs.all()

    def job(self, job_id: str) -> JobSnapshot:
        try:
            return self._jobs.find(job_id)
        except UnknownJob:
            self._check_shows_all()
            raise

    def _check_shows_all(self) -> None:
        """Raise NotLeading if this Dispatcher leads, but might not have found all jobs yet."""
        if self._coordination.leading and not self._shows_all:
            raise NotLeading(_ADOPTS, fix="Try again in a few seconds.")

    async def ask(self, job_id: str, request: Request) -> Answer:
        self.job(job_id)
        return await self._jobs.ask(job_id, request, REST_TIMEOUT.read(self._settings) / 1000)

    async def cancel(self, job_id: str) -> None:
        self._check_leading()
        snapshot = self.job(job_id)
        if snapshot.ended_ms >= 0:
            raise Conflict(f"Job {job_id} has ended: it is {snapshot.state}.", fix="There is nothing to cancel.")
        await asyncio.to_thread(self._records.request_cancel, job_id)

    async def trigger(self, job_id: str, request: Operable, trigger_id: str = "") -> str:
        trigger_id = trigger_id or secrets.token_hex(16)
        await self.ask(job_id, Trigger(id=trigger_id, request=request))
        return trigger_id

    async def operation(self, job_id: str, trigger_id: str) -> Operation:
        if not job_id:
            return self._operations.poll(trigger_id)
        operation = await self._operation(job_id, trigger_id)
        if operation.done:
            # A client that reads the job after the result must see its effect, such as the new parallelism.
            await self._jobs.await_effect(job_id, operation, _RESULT_SHOWN_S)
        return operation

    async def _operation(self, job_id: str, trigger_id: str) -> Operation:
        try:
            answer = await self.ask(job_id, Poll(id=trigger_id))
            if isinstance(answer, Operation):
                return answer
        except Conflict:
            pass
        return await last_operation(self._jobs, self._supervisor, self._records, job_id, trigger_id)

    async def dispose_savepoint(self, path: str, trigger_id: str = "") -> str:
        return trigger_disposal(self._operations, path, self._settings, trigger_id)

    # -- programs ------------------------------------------------------------------------------------------------------

    async def programs(self) -> Sequence[StoredProgram]:
        return await asyncio.to_thread(self._programs.all)

    async def upload(self, name: str, file: Path) -> StoredProgram:
        self._check_leading()
        return await asyncio.to_thread(self._programs.store, name, file)

    async def remove_program(self, program_id: str) -> None:
        self._check_leading()
        await asyncio.to_thread(self._programs.remove, program_id)

    async def run(self, request: RunRequest) -> str:
        self._check_leading()
        if self._draining:
            raise Conflict(
                "The service is draining and accepts no jobs.",
                fix="Start it again: `penstock cluster stop`, then `penstock cluster start`. Jobs keep running.",
            )
        if self._storage_problem:
            raise Conflict(self._storage_problem, fix="Free space, or make the storage writable, and try again.")
        # The limit of running jobs counts those that this Dispatcher is about to find.
        with suppress(TimeoutError):
            await asyncio.wait_for(self._found_all.wait(), REST_TIMEOUT.read(self._settings) / 2000)
        self._check_leading()
        self._check_shows_all()
        return await self._submissions.accept(request)

    async def plan(self, request: RunRequest) -> str:
        return await self._inspect(request, savepoint=False)

    async def dry_run(self, request: RunRequest) -> str:
        return await self._inspect(request, savepoint=True)

    async def _inspect(self, request: RunRequest, *, savepoint: bool) -> str:
        try:
            async with asyncio.timeout(_INSPECTION_WAIT_S):
                await self._inspections.acquire()
        except TimeoutError:
            raise Timeout(
                f"The service builds the jobs of {_INSPECTIONS} other programs, the most at the same time.",
                fix="Try again in a few seconds, or submit the program as a job.",
            ) from None
        try:
            program, name = await asyncio.to_thread(self._programs.read, request.program)
            defaults = job_defaults(self._settings, self.directory)
            return await inspect(program, name, request, defaults, self.directory.root, savepoint=savepoint)
        finally:
            self._inspections.release()

    # -- the service ---------------------------------------------------------------------------------------------------

    async def logs(self, job_id: str) -> Sequence[LogFile]:
        if not job_id:
            return log_files({path.name: path for path in sorted(self.directory.root.glob("*.log*"))})
        self.job(job_id)
        own, others = await asyncio.gather(asyncio.to_thread(self._agent.logs, job_id), self._others.logs(job_id))
        return logs_of_all(own, others, self._jobs.view(job_id))

    def events(self, after: int = -1) -> AsyncIterator[Event]:
        return self._events.follow(after)

    async def drain(self) -> None:
        self._draining = True
        # It remains the agent of its host.
        await asyncio.to_thread(self._coordination.withdraw)

    async def shut_down(self) -> None:
        self.closing.set()

    def _check_leading(self) -> None:
        if not self._coordination.leading:
            raise NotLeading(
                "This Dispatcher does not lead.",
                fix=f"Send the request to the leader, {self._coordination.leader_address() or 'once there is one'}.",
            )
