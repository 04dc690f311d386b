"""A host whose processes are simulated, for tests of supervisors."""

from penstock.cluster.order import Order
from penstock.cluster.records import Claim, Records
from penstock.cluster.supervision import Process


class Host:
    """Launches simulated processes."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.now = 0
        self.started: list[tuple[str, int]] = []
        self.refuses = 0
        """How many starts fail."""
        self.alive: set[int] = set()
        self.immortal: set[int] = set()
        self.reported: set[tuple[str, int]] = set()
        """Attempts whose process has reported a running job."""
        self.heard: dict[tuple[str, int], int] = {}
        self.kills: list[int] = []
        self.reachable = True

    def start(self, order: Order) -> None:
        if self.refuses:
            self.refuses -= 1
            raise OSError("no space left on device")
        self.started.append((order.job_id, order.attempt))

    def claim(self, job: str, attempt: int = 1) -> Claim:
        pid = 1000 + len(self.alive) + len(self.kills)
        claim = Claim(token=f"t{pid}", host="h", boot="b", pid=pid, started=1, at_ms=self.now)
        assert self.records.claim(job, attempt, claim)
        self.alive.add(pid)
        return claim

    def state(self, job_id: str, attempt: int, claim: Claim) -> Process:
        if not self.reachable:
            return Process.UNKNOWN
        return Process.ALIVE if claim.pid in self.alive else Process.DEAD

    def start_failure(self, job_id: str, attempt: int) -> str:
        return ""

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return claim.pid in self.alive

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        self.kills.append(claim.pid)
        self.alive -= {claim.pid} - self.immortal
        return claim.pid not in self.alive
