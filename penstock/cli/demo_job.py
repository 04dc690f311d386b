"""The demo's program, which counts requests per URL in an access log. `demo` starts, kills and restarts it.

Run as `python -m penstock.cli.demo_job WORK EVENTS`: the demo's work directory, and the file descriptor to which it
writes the link to the page and each completed epoch as lines of JSON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.application import page_if_installed
from penstock.cli.ledger import LedgerSink
from penstock.cli.presence import announce
from penstock.cli.service_packages import has_page
from penstock.common import Configuration
from penstock.common.job_client import JobClient
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.common.options.service import CLUSTER_DIRECTORY, REST_PORT
from penstock.common.options.state import LOCAL_DIRECTORIES
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.rest.token_file import service_token
from penstock.web.login import login_url

if TYPE_CHECKING:
    from penstock.spark.job import Job

NAME = "url-count"


class Page(msgspec.Struct, tag="page"):
    """The link that opens the page of the job."""

    url: str


class Completed(msgspec.Struct, tag="epoch"):
    epoch: EpochStatistics


Event = Page | Completed


class Work:
    """The paths in the demo's work directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "log"
        self.checkpoints = root / "checkpoints"
        self.replicas = root / "replicas"
        self.ledger = root / "ledger"
        self.workers = root / "workers"
        self.scratch = root / "scratch"
        self.service = root / "service"
        self.port = root / "port"
        """The port of the page. A driver that is started again takes the same one, so that an open page comes back."""

    def create(self) -> None:
        for folder in (self.checkpoints, self.ledger, self.workers, self.scratch):
            folder.mkdir()


def url_of(row: Any) -> str:
    """Return the URL of a line such as `203.0.113.7 - - [time zone] "GET /api/a HTTP/1.1" 200 …`."""
    line: str = row[0]
    return line.split(" ", 7)[6]


class UrlCount(KeyedProcessFunction):
    """Emits (url, 1), (url, 2), …: one result per request."""

    def __init__(self, workers: Path) -> None:
        self._workers = workers

    def open(self, runtime_context: RuntimeContext) -> None:
        announce(self._workers)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def configuration(work: Work) -> Configuration:
    config = Configuration()
    # A small job gains little from more cores.
    config.set_string("spark.master", f"local[{min(os.cpu_count() or 1, 4)}]")
    config.set_string("spark.local.dir", str(work.scratch))
    # By default a file of a few MB goes to a single core while the others idle.
    config.set_string("spark.sql.files.openCostInBytes", "1")
    config.set_string(CHECKPOINTS_DIRECTORY.key, work.checkpoints.as_uri())
    config.set_string(LOCAL_DIRECTORIES.key, str(work.replicas))
    return config


@contextmanager
def served_page(work: Work) -> Iterator[str | None]:
    """Serve the page of the jobs of this process. Yield the link that opens it, or None without its packages."""
    if not has_page():
        yield None
        return
    from penstock.rest.application_service import served_application
    from penstock.rest.server import CannotListen

    settings = {CLUSTER_DIRECTORY.key: str(work.service)}
    with ExitStack() as stack:
        try:
            again = {REST_PORT.key: work.port.read_text()} if work.port.exists() else {}
            gateway, address = stack.enter_context(served_application(settings | again, page_if_installed()))
        except CannotListen:
            gateway, address = stack.enter_context(served_application(settings, page_if_installed()))
        work.port.write_text(address.rpartition(":")[2])

        def observe(job: Job, client: JobClient) -> Callable[[], None]:
            gateway.attach(job, client)
            return lambda: gateway.detach(job.id)

        launch(LaunchContext(observe=observe))
        yield login_url(address, service_token(settings))


def main(work: Work, events: int) -> None:
    out = os.fdopen(events, "wb", buffering=0)

    def send(event: Event) -> None:
        out.write(msgspec.json.encode(event) + b"\n")

    with served_page(work) as url:
        if url is not None:
            send(Page(url))
        _run(work, lambda epoch: send(Completed(epoch)))


def _run(work: Work, report: Callable[[EpochStatistics], None]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration(work))
    env.enable_checkpointing(100)
    env.add_epoch_listener(report)
    lines = env.spark.readStream.option("maxFilesPerTrigger", 1).text(str(work.log))
    urls = env.from_spark(lines, bounded=True).map(url_of, output_type=str)
    counts = urls.key_by(lambda url: url).process(UrlCount(work.workers)).uid("url-count")
    counts.sink_to(LedgerSink(work.ledger)).uid("ledger")
    env.execute(NAME)


if __name__ == "__main__":
    main(Work(Path(sys.argv[1])), int(sys.argv[2]))
