"""Two real supervisors lead at the same time, over the same records, with simulated processes: random interleavings.

A simulated JobManager follows the protocol of the real one step by step: claim, bind, recover, publish, commit, decide,
remove. It can stop, die or lose contact between any two steps, and the other supervisor acts between any two accesses
of a supervisor to the records.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from memory_storage import MemoryStorage

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.order import Order
from penstock.cluster.records import Claim, Ended, JobView, Planned, Records, Submission
from penstock.cluster.supervision import Policy, Process
from penstock.cluster.supervisor import Supervisor
from penstock.driver.assignment import Verdict

EPOCHS = 3
POLICY = Policy(start_timeout_ms=20_000, unknown_timeout_ms=12_000, silent_timeout_ms=20_000)


@dataclass
class Lineage:
    """The checkpoints and the output of a job."""

    opened: int = 0
    """How often a process found no lineage and began to run a new one: a second time repeats all output."""
    exists: bool = False
    published: int = 0
    committed: set[int] = field(default_factory=set)
    closed: bool = False


@dataclass(eq=False)
class JobManager:
    """A simulated process. Each step of `life` is one access to the records or the checkpoints."""

    world: "World"
    order: Order
    pid: int
    life: Iterator[None] = field(init=False)
    claimed: bool = False
    started: bool = False
    hung: bool = False
    unreachable: bool = False

    def __post_init__(self) -> None:
        self.token = f"token {self.pid}"
        self.life = self._live()

    def _live(self) -> Iterator[None]:
        world, job, number = self.world, self.order.job_id, self.order.attempt
        records, lineage = world.plain, world.lineages[job]
        claim = Claim(token=self.token, host="h", boot="b", pid=self.pid, started=1, at_ms=world.now)
        if not records.claim(job, number, claim):
            return
        self.claimed = True
        world.claims.append((job, number))
        yield
        while world.chance.random() < 0.2:  # the program, before it executes the job
            if self._is_over():
                return
            if records.view(job).cancel_requested and not self.order.finalize:
                bound = records.view(job).lineage is not None
                self._decide(Verdict.LOST if bound else Verdict.CANCELED)
                return
            yield
        records.bind_lineage(job, f"lineage of {job}")
        yield
        new = not lineage.exists
        if new:
            lineage.exists, lineage.published, lineage.closed = True, 0, False
        last = lineage.published
        yield
        # A process that was slow finds no lineage after its successor finished the job.
        if self._is_over():
            return
        lineage.opened += new
        yield
        if last:
            lineage.committed.add(last)
        self.started = True
        yield
        while not self._is_over():
            cancelled = self.order.finalize or records.view(job).cancel_requested
            if last == EPOCHS:
                yield from self._end(Verdict.FINISHED)
                return
            if cancelled and (lineage.published != last or not lineage.exists):
                self._decide(Verdict.LOST)
                return
            if cancelled:
                lineage.closed = True
                yield from self._end(Verdict.CANCELED)
                return
            yield
            if world.chance.random() < 0.03:
                self._decide(Verdict.FAILED)
                return
            if lineage.closed or lineage.published != last or not lineage.exists:
                self._decide(Verdict.LOST)  # fenced
                return
            last = lineage.published = last + 1
            yield
            lineage.committed.add(last)
            yield

    def _is_over(self) -> bool:
        ended = self.world.plain.view(self.order.job_id).attempts[self.order.attempt - 1].ended
        return ended is not None and ended.by != self.token

    def _decide(self, verdict: Verdict) -> bool:
        mine = Ended(verdict=verdict, by=self.token, at_ms=self.world.now)
        decided = self.world.plain.end(self.order.job_id, self.order.attempt, mine) == mine
        if decided and verdict is not Verdict.LOST:
            self.world.verdicts.setdefault(self.order.job_id, []).append(verdict)
        return decided

    def _end(self, verdict: Verdict) -> Iterator[None]:
        yield
        if self._decide(verdict):
            yield
            self.world.lineages[self.order.job_id].exists = False


class Interleaved(Records):
    """Records whose reader can be overtaken by others before and after each access."""

    def __init__(self, storage: SharedStorage, others: Callable[[], None]) -> None:
        super().__init__(storage)
        self._others = others

    def view(self, job_id: str) -> JobView:
        seen = super().view(job_id)
        self._others()
        return seen

    def plan(self, job_id: str, number: int, planned: Planned) -> bool:
        self._others()
        won = super().plan(job_id, number, planned)
        self._others()
        return won

    def end(self, job_id: str, number: int, ended: Ended) -> Ended:
        self._others()
        return super().end(job_id, number, ended)


class Inline(Executor):
    """Kills in the thread of the caller, so that a seed repeats its run."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class World:
    """Hosts, processes and two leaders."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0
        storage = cast(SharedStorage, MemoryStorage())
        self.plain = Records(storage)
        self.calm = False
        self.depth = 0
        self.alive: dict[int, JobManager] = {}
        self.pids = 0
        self.claims: list[tuple[str, int]] = []
        self.verdicts: dict[str, list[Verdict]] = {}
        self.jobs: list[str] = []
        self.lineages: dict[str, Lineage] = {}
        records = Interleaved(storage, self.interleave)
        self.leaders = [self.leader(name, records, skew) for name, skew in (("a", 0), ("b", 900))]

    def submit(self) -> None:
        job = f"{len(self.jobs):032x}"
        self.plain.submit(
            Submission(id=job, name="n", program="", file="j.py", submitted_ms=self.now, python="3", penstock="0")
        )
        self.jobs.append(job)
        self.lineages[job] = Lineage()
        for leader in self.leaders:
            leader.add(job)

    def leader(self, name: str, records: Records, skew_ms: int) -> Supervisor:
        return Supervisor(
            leader=name,
            records=records,
            launcher=self,
            policy=POLICY,
            most_starts=2,
            present=lambda: set(),
            order=lambda job, number, finalize: Order(
                job_id=job, attempt=number, finalize=finalize, records="", settings={}, control="", folder=""
            ),
            heard_ms=lambda job, number: self.now + skew_ms if self.answers(job, number) else None,
            has_started=lambda job, number: self.answers(job, number),
            ask_to_cancel=lambda job, number: None,
            changed=lambda view: None,
            broken=lambda job, problem: pytest.fail(problem),
            clean_up=lambda view: None,
            can_act=lambda: True,
            now_ms=lambda: self.now + skew_ms,
            _pool=Inline(),  # type: ignore[arg-type]
            _cleaners=Inline(),  # type: ignore[arg-type]
        )

    # -- the launcher of both leaders ----------------------------------------------------------------------------------

    def start(self, order: Order) -> None:
        self.pids += 1
        self.alive[self.pids] = JobManager(self, order, self.pids)

    def state(self, job_id: str, attempt: int, claim: Claim) -> Process:
        process = self.alive.get(claim.pid)
        if process is not None and process.unreachable:
            return Process.UNKNOWN
        return Process.DEAD if process is None else Process.ALIVE

    def start_failure(self, job_id: str, attempt: int) -> str:
        return ""

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return self.state(job_id, attempt, claim) is Process.ALIVE

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        if self.state(job_id, attempt, claim) is Process.ALIVE:
            del self.alive[claim.pid]
        return self.state(job_id, attempt, claim) is Process.DEAD

    # -- chance --------------------------------------------------------------------------------------------------------

    def answers(self, job: str, number: int) -> bool:
        return any(
            each.started and not each.hung and not each.unreachable
            for each in self.alive.values()
            if (each.order.job_id, each.order.attempt) == (job, number)
        )

    def interleave(self) -> None:
        if not self.calm and self.depth < 2 and self.chance.random() < 0.25:
            self.depth += 1
            self.act()
            self.depth -= 1

    def act(self) -> None:
        """Let one leader or process do something, or let something happen to it."""
        roll = self.chance.random()
        if roll < 0.3:
            self.chance.choice(self.leaders).tick()
        elif roll < 0.33:
            # Another leader without memory replaces this one.
            leader = self.chance.choice(self.leaders)
            leader.forget_all()
            for job in self.jobs:
                leader.add(job)
        elif roll < 0.36:
            self.plain.request_cancel(self.chance.choice(self.jobs))
        elif self.alive:
            self.run_process(self.alive[self.chance.choice(list(self.alive))])

    def run_process(self, process: JobManager) -> None:
        roll = 1 if self.calm else self.chance.random()
        if roll < 0.04:
            self.alive.pop(process.pid, None)
        elif roll < 0.07:
            process.hung = not process.hung
        elif roll < 0.13:
            process.unreachable = process.claimed and not process.unreachable
        elif not process.hung:
            try:
                next(process.life)
            except StopIteration:
                self.alive.pop(process.pid, None)
            except ValueError:  # it is inside a step, further up the stack
                pass

    def check(self) -> None:
        assert len(set(self.claims)) == len(self.claims)
        for job in self.jobs:
            view, lineage = self.plain.view(job), self.lineages[job]
            ends = [each.ended for each in view.attempts if each.ended]
            assert sum(end.verdict is not Verdict.LOST for end in ends) <= 1
            assert len(self.verdicts.get(job, [])) <= 1
            # None is planned before its predecessor has ended, and none after a verdict.
            assert all(each.ended for each in view.attempts[:-1])
            assert lineage.opened <= 1
            if view.verdict is not None:
                assert view.last is not None
                assert view.last.ended == view.verdict
                self.check_end(view, view.verdict, lineage)

    def check_end(self, view: JobView, verdict: Ended, lineage: Lineage) -> None:
        attempt = view.attempts[-1]
        if verdict.by in ("a", "b"):
            # A leader decides over no process that runs.
            assert attempt.claim is None
        if verdict.verdict is Verdict.FINISHED:
            assert lineage.committed == set(range(1, EPOCHS + 1))
        if verdict.verdict is Verdict.CANCELED and "could not be committed" not in verdict.reason and lineage.closed:
            assert lineage.committed == set(range(1, lineage.published + 1))


def run(seed: int) -> World:
    world = World(seed)
    for steps in (25, 50):
        world.submit()
        for _ in range(steps):
            world.now += world.chance.choice([0, 100, 2_000, 5_000, 9_000])
            world.act()
            world.check()
    # No more faults: hosts answer again, and one leader is left.
    world.calm = True
    for process in world.alive.values():
        process.unreachable = process.hung = False
    leader = world.leaders[0]
    for job in world.jobs:
        leader.add(job)
    for _ in range(60):
        world.now += 5_000
        leader.tick()
        for process in list(world.alive.values()):
            for _ in range(4):
                if process.pid in world.alive:
                    world.run_process(process)
        if all(world.plain.view(job).verdict for job in world.jobs) and not world.alive:
            break
    world.check()
    return world


def check_outcome(world: World) -> None:
    for job in world.jobs:
        view = world.plain.view(job)
        assert view.verdict is not None, view
        assert not [each for each in world.alive.values() if each.order.job_id == job]
        given_up = "could not be committed" in view.verdict.reason
        if view.verdict.verdict is Verdict.CANCELED and not given_up:
            assert world.lineages[job].published in (0, *world.lineages[job].committed), view


def test_two_leaders_keep_the_invariants_in_1000_random_interleavings() -> None:
    seen: dict[str, int] = {}
    for seed in range(1000):
        world = run(seed)
        check_outcome(world)
        for job in world.jobs:
            view = world.plain.view(job)
            assert view.verdict is not None
            seen[view.verdict.verdict.value] = seen.get(view.verdict.verdict.value, 0) + 1
            seen["lost"] = seen.get("lost", 0) + sum(
                1 for each in view.attempts if each.ended and each.ended.verdict is Verdict.LOST
            )
    # The runs reach each end, also after losses.
    assert min(seen.get(each, 0) for each in ("finished", "canceled", "failed", "lost")) > 50, seen
