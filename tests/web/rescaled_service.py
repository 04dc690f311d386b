"""A service with a page in front of a job in the harness that can be rescaled, with a fixed number of slots.

    python rescaled_service.py <folder> <slots>

prints the login link. For each line of standard input, it then takes the number in it as the slots, if there is one,
runs an epoch if there are enough, and prints the number of the last checkpoint.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/rest"), str(ROOT / "tests/web")]

from fake_gateway import JOB, FakeGateway  # noqa: E402
from page_service import Count  # noqa: E402

from penstock.datastream import StreamExecutionEnvironment  # noqa: E402
from penstock.driver.control_messages import Done, Operable, Rescale  # noqa: E402
from penstock.driver.job_snapshot import JobSnapshot, Operation  # noqa: E402
from penstock.driver.operations import Operations  # noqa: E402
from penstock.driver.slots import Slots, SlotSettings  # noqa: E402
from penstock.rest.assembly import rest_server  # noqa: E402
from penstock.rest.token_file import service_token  # noqa: E402
from penstock.state.local_storage import LocalStorage  # noqa: E402
from penstock.testing import JobHarness  # noqa: E402
from penstock.web.login import login_url  # noqa: E402
from penstock.web.mount import add_page  # noqa: E402

WORDS = [f"word {number}" for number in range(60)]


class RescaledJob(FakeGateway):
    """A gateway of one job. It runs no epoch while it has too few slots, as a job on Spark."""

    def __init__(self, settings: Mapping[str, str], folder: Path, slots: int) -> None:
        super().__init__(settings, folder / "logs")
        env = StreamExecutionEnvironment.get_execution_environment()
        words = env.from_collection([]).name("words").uid("words").key_by(lambda word: word)
        counts = words.process(Count()).name("count").uid("count")
        self.slots = slots
        self._lock = threading.Lock()
        self._asked = Operations(kept_s=60)
        storage = LocalStorage(folder / "checkpoints")
        self._job = JobHarness(counts, parallelism=2, max_parallelism=128, backend="filesystem", storage=storage)
        driver = self._job._driver
        driver.slots = self._slots = Slots(
            "counts", lambda: driver.graph, lambda: self.slots, SlotSettings(wait=True), pause=lambda: False
        )
        self.epoch()

    def epoch(self) -> int:
        """Run an epoch if there are slots, and return the last checkpoint."""
        with self._lock:
            if self._slots.await_enough():
                self._job.push(*WORDS).epoch()
            return self._job.checkpoint

    def jobs(self) -> list[JobSnapshot]:
        return [self.job(JOB)]

    def job(self, job_id: str) -> JobSnapshot:
        with self._lock:
            return msgspec.structs.replace(self._job.snapshot(), id=JOB, name="counts")

    async def trigger(self, job_id: str, request: Operable, trigger_id: str = "") -> str:
        assert isinstance(request, Rescale)

        def rescale() -> Done:
            with self._lock:
                self._job.rescale(request.parallelism)
                self._slots.await_enough()
            return Done()

        return self._asked.trigger(trigger_id, rescale).trigger_id

    async def operation(self, job_id: str, trigger_id: str) -> Operation:
        return self._asked.poll(trigger_id)


def main() -> None:
    """Serve until standard input ends."""
    folder, slots = Path(sys.argv[1]), int(sys.argv[2])
    (folder / "logs").mkdir(parents=True)
    settings = {
        **{"rest.port": "0", "rest.auth.token-file": str(folder / "token"), "cluster.dir": str(folder)},
        "web.refresh-interval": "1 s",
    }
    gateway = RescaledJob(settings, folder, slots)
    server = rest_server(gateway, settings, folder, add_page)
    server.start()
    print(login_url(server.address, service_token(settings)), flush=True)
    for line in sys.stdin:
        gateway.slots = int(line.strip() or gateway.slots)
        print(gateway.epoch(), flush=True)
    server.stop()


if __name__ == "__main__":
    main()
