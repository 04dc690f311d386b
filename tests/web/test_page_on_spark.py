"""The page of a cluster whose jobs run on Spark: a job's whole life, a job that crashes, and a Dispatcher that dies."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser
from playwright.sync_api import Page, expect, sync_playwright
from query_jobs import free_ports
from service_host import SMALL, ServiceHost

from penstock.cluster.service_lock import holder_of, is_held
from penstock.query import QueryableStateClient
from penstock.query.errors import QueryError
from penstock.tables import Savepoint

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.slow, needs_browser]

START_MS = 120_000
"""How long a JobManager can take to start on a busy machine."""
COUNTS = """\
import sys
from pathlib import Path

from penstock.common.typeinfo import Types
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def __init__(self, marker):
        self.marker = marker

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.set_queryable("counts")
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        seen = (self.seen.value() or 0) + 1
        if self.marker and seen == 5 and not Path(self.marker).exists():
            Path(self.marker).touch()
            raise ValueError(f"the fifth record of <i>{value[0]}</i> is bad")
        self.seen.update(seen)
        yield value[0], seen


env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda n: (f"sensor-{n % 3}", 1), records_per_epoch=6)
ticks = env.from_source(source, source_name="ticks").uid("ticks")
ticks.key_by(lambda tick: tick[0]).process(Count("".join(sys.argv[2:]))).name("count").uid("count").print()
env.execute(sys.argv[1])
"""
"""A program whose arguments are the name of its endless job, and a file that it creates before it fails, once."""


class Cluster(ServiceHost):
    """A Dispatcher with a port that it keeps, and what its jobs need."""

    def __init__(self, folder: Path) -> None:
        port, proxy, *servers = free_ports(5)
        self.proxy = proxy
        self.token = folder / "query-token"
        # Everything next to a program is shipped with it.
        self.program = folder / "program" / "counts.py"
        self.program.parent.mkdir()
        self.program.write_text(COUNTS)
        super().__init__(
            folder,
            {
                **SMALL,
                "rest.port": str(port),
                "web.refresh-interval": "1 s",
                "state.checkpoints.dir": str(folder / "checkpoints"),
                "state.savepoints.dir": str(folder / "savepoints"),
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.delay": "8 s",
                "queryable-state.enable": "true",
                "queryable-state.proxy.ports": str(proxy),
                "queryable-state.server.ports": ",".join(map(str, servers)),
                "queryable-state.auth.token-file": str(self.token),
                # A slow client still finds the checkpoint that the page has shown.
                "queryable-state.retained-checkpoints": "1000",
            },
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.said("cluster", "start")
        yield made
    finally:
        made.close()


@contextmanager
def opened(cluster: Cluster) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.goto(cluster.said("web"))
        yield page
        browser.close()


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Page]:
    with ExitStack() as stack:
        yield stack.enter_context(opened(cluster))


def submit(page: Page) -> None:
    """Submit the form, and open the page of the job."""
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("link", name=re.compile("^[0-9a-f]{32}$")).click()
    expect(page.locator("h1")).to_contain_text("running", timeout=START_MS)


def confirm(page: Page, action: str, button: str = "") -> None:
    page.get_by_role("button", name=action, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button or action).click()


def look_up(page: Page, key: str):  # type: ignore[no-untyped-def]
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Look up").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Key group")
    return result


def is_served(cluster: Cluster, job: str) -> bool:
    """Return whether the state of the job can be read from its server, the first of which makes the token."""
    if not cluster.token.exists():
        return False
    with QueryableStateClient("127.0.0.1", cluster.proxy, token_file=str(cluster.token)) as client:
        try:
            return len(client.get_many(job, "counts", [f"sensor-{number}" for number in range(3)])) == 3
        except QueryError as error:
            if not error.again:
                raise
            return False


def test_a_job_is_submitted_watched_read_saved_stopped_restored_compared_and_cancelled(cluster, page):
    page.get_by_role("link", name="Submit a program").click()
    page.locator("input[type=file]").set_input_files(cluster.program)
    expect(page.get_by_text("It does not run yet.")).to_be_visible()
    page.get_by_label("Arguments").fill("north")
    submit(page)
    job = page.url.split("/jobs/")[1].split("/")[0]

    # Six records per epoch and two epochs per second: any rate but none.
    expect(page.locator("svg.graph g.edge text").first).not_to_have_text("0 rec/s")

    # The page reads what a client of queryable state reads at the same checkpoint. Without a server of the state,
    # which starts with the job, it would read the checkpoint itself.
    cluster.until(lambda: is_served(cluster, job))
    page.locator("#section-state").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 3")
    expect(page.get_by_role("region", name="Result")).to_contain_text("live from the job's state server")
    text = look_up(page, "sensor-1").inner_text()
    number = re.search(r"checkpoint (\d+), live", text)
    assert number is not None, text
    value = re.search(r"(\d+)\s+int", text)
    assert value is not None, text
    with QueryableStateClient("127.0.0.1", cluster.proxy, token_file=str(cluster.token)) as client:
        assert client.get(job, "counts", "sensor-1", checkpoint=int(number[1])) == int(value[1])

    confirm(page, "Savepoint")
    expect(page.get_by_text("Savepoint is complete.")).to_be_visible()
    (first,) = (cluster.folder / "savepoints").iterdir()
    page.get_by_role("button", name="Close").click()
    confirm(page, "Stop")
    expect(page.locator("h1")).to_contain_text("finished")
    (last,) = set((cluster.folder / "savepoints").iterdir()) - {first}

    page.goto(page.url.replace("/state", "/checkpoints"))
    row = page.locator(".savepoint").filter(has_text=last.name)
    expect(page.locator(".savepoint")).to_have_count(2)
    row.get_by_role("link", name="Resume from it").click()
    page.get_by_label("Program", exact=True).click()
    page.get_by_role("option", name="counts.py").click()
    page.get_by_label("Arguments").fill("south")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("The job would resume from the savepoint.")).to_be_visible()
    submit(page)
    page.locator("#section-checkpoints").click()
    expect(page.get_by_text("resumed from")).to_be_visible()

    # The restored job continues the counts of the savepoint, and both savepoints can be compared.
    seen = [
        {row["key"]: row["value"] for row in Savepoint.load(each).state("count", "seen").rows()}
        for each in (first, last)
    ]
    page.locator("#section-state").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Rows 1 to 3")
    restored = re.search(r"(\d+)\s+int", look_up(page, "sensor-1").inner_text())
    assert restored is not None
    assert int(restored[1]) >= seen[1]["sensor-1"]
    for each in (first, last):
        page.get_by_label("Or the path of a savepoint").fill(str(each))
        page.get_by_role("button", name="Open").click()
        expect(result).to_contain_text(f"Read from: {each}")
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name=first.name).click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(result).to_contain_text("3 changed, 0 added, 0 removed of 3 keys.")
    cells = [row.locator("td").all_inner_texts() for row in result.locator("tbody tr").all()]
    assert {key: int(before) for _, key, before, _ in cells} == seen[0]
    assert {key: int(after.split()[0]) for _, key, _, after in cells} == seen[1]

    confirm(page, "Cancel", "Cancel the job")
    expect(page.locator("h1")).to_contain_text("canceled")


@pytest.fixture(scope="module")
def crashing(cluster: Cluster) -> str:
    """Submit a job that fails once, and return its id."""
    said = cluster.said("run", "-d", str(cluster.program), "crashing", str(cluster.folder / "marker"))
    found = re.search("[0-9a-f]{32}", said)
    assert found is not None, said
    return found[0]


def test_a_job_that_crashes_is_shown_as_restarting_and_recovers(cluster, page, crashing):
    problem = page.locator(".problems li[data-kind=restarting]").filter(has_text="crashing")
    expect(problem).to_contain_text("ValueError", timeout=START_MS)
    expect(problem).to_contain_text("Next:")
    page.get_by_role("link", name="crashing", exact=True).last.click()
    expect(page.locator("h1")).to_contain_text("running")
    expect(page.locator("dl.facts div").filter(has_text="Restarts")).to_contain_text("1")
    page.locator("#section-exceptions").click()
    trace = page.locator("details.exception").first
    expect(trace.locator("summary")).to_contain_text("ValueError")
    expect(trace.locator("pre").first).to_contain_text("the fifth record of <i>sensor-")
    assert page.locator("details.exception i").count() == 0


def test_a_page_stays_open_while_the_dispatcher_dies_and_comes_back(cluster, page, crashing):
    page.get_by_role("link", name="crashing", exact=True).last.click()
    expect(page.locator("h1")).to_contain_text("running", timeout=START_MS)
    claim = cluster.claim(crashing)
    holder = holder_of(cluster.cluster / "lock")
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    cluster.until(lambda: not is_held(cluster.cluster / "lock"))
    with page.expect_response(lambda answer: f"/web/jobs/{crashing}" in answer.url and answer.ok, timeout=60_000):
        cluster.said("cluster", "start")
    expect(page.locator("h1")).to_contain_text("crashing running")
    assert cluster.claim(crashing) == claim
    page.locator("#section-state").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 3")
    look_up(page, "sensor-0")
