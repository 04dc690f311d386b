"""Pages that stay open while a job is rescaled: graph, subtasks, owner of a key, dialog and problems follow."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser
from playwright.sync_api import BrowserContext, Locator, Page, expect, sync_playwright

from penstock.state.blocks import blocks_for
from penstock.state.key_groups import key_group_of, owner_of
from penstock.state.keys import encode_key

pytestmark = [pytest.mark.long, needs_browser]

PROGRAM = Path(__file__).with_name("rescaled_service.py")
JOB = f"{1:032x}"
SLOTS = 40
MOST = 128
SECTIONS = ["graph", "charts", "checkpoints", "exceptions", "configuration", "plan", "executors", "state"]


class Service:
    """The service in its process, and what it writes to its log."""

    def __init__(self, folder: Path) -> None:
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("rescaled_service.py")),
                    str(folder / "data"),
                    str(SLOTS),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.login = self.process.stdout.readline().strip()
        parts = urlsplit(self.login)
        self.address = f"{parts.scheme}://{parts.netloc}"

    def epoch(self, slots: int | None = None) -> int:
        """Run an epoch if there are enough slots, and return the last checkpoint."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{slots or ''}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    yield running
    running.close()
    assert "Traceback" not in running.errors.read_text()


@pytest.fixture
def context(service: Service) -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        made = browser.new_context()
        problems: list[str] = []
        made.on("weberror", lambda error: problems.append(str(error.error)))
        made.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        first = made.new_page()
        first.goto(service.login)
        expect(first.get_by_role("heading", name="Jobs").first).to_be_visible()
        first.close()
        yield made
        browser.close()
    assert problems == []


def opened(context: BrowserContext, service: Service, path: str) -> Page:
    page = context.new_page()
    page.goto(f"{service.address}/web/jobs/{JOB}{path}")
    page.locator(".live").first.wait_for()
    return page


def parallelism(page: Page) -> Locator:
    return page.locator("dl.facts div").filter(has_text="Parallelism").locator("dd")


def rescale(page: Page, wanted: int, *, shown: int, slots: int = SLOTS, said: str = "Rescale is complete.") -> None:
    """Rescale from the page, whose dialog shows the current parallelism. `said`: what the page says then."""
    page.get_by_role("button", name="Rescale", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"The job needs {shown} slots now, and {slots} are available.")
    expect(dialog.get_by_label("Parallelism")).to_have_value(str(shown))
    dialog.get_by_label("Parallelism").fill(str(wanted))
    dialog.get_by_role("button", name="Rescale").click()
    expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    page.get_by_role("button", name="Close").click()


def owner(key: str, subtasks: int, blocks: int) -> str:
    group = key_group_of(encode_key(key), MOST)
    return f"Key group {group}, block {group * blocks // MOST}, owned by subtask {owner_of(group, subtasks, MOST)}"


def look_up(page: Page, key: str, expected: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Look up").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Key group")
    expect(result.get_by_text(re.compile("^Key group"))).to_have_text(expected)


def test_open_pages_follow_a_rescale_to_more_subtasks_to_too_many_and_back(service, context):
    graph = opened(context, service, "/graph")
    graph.locator("a.vertex").nth(1).click()
    subtasks = graph.get_by_role("table", name="Subtasks").locator("tbody tr")
    expect(subtasks).to_have_count(2)
    expect(graph.locator("a.vertex").nth(1)).to_contain_text("parallelism 2 ·")
    state = opened(context, service, "/state")
    expect(state.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 50")
    plan = opened(context, service, "/plan")
    # Its group belongs to other blocks and to another subtask after the rescale.
    look_up(state, "word 7", owner("word 7", 2, 16))

    rescale(graph, 24, shown=2)
    assert service.epoch() >= 2
    expect(subtasks).to_have_count(24)
    expect(graph.locator("a.vertex").nth(1)).to_contain_text("parallelism 24 ·")
    expect(parallelism(graph)).to_have_text("24")
    expect(parallelism(state)).to_have_text("24")
    expect(plan.locator("pre").first).to_contain_text("(parallelism 24)")
    blocks = blocks_for(24, MOST).count
    assert blocks > 24
    look_up(state, "word 7", owner("word 7", 24, blocks))

    # More subtasks than there are slots.
    said = "but Spark has 40. It keeps its parallelism. Next: Give Spark 100 cores first, rescale the job to"
    rescale(graph, 100, shown=24, said=said)
    rescale(graph, 200, shown=24, said="Next: Choose a number from 1 to 128.")
    expect(parallelism(graph)).to_have_text("24")

    before = service.epoch(slots=10)
    problem = graph.locator(".problems li[data-kind=slots]")
    expect(problem).to_contain_text("The job waits for slots: it needs 24, and 10 are available.")
    expect(problem).to_contain_text("Next: Give Spark more cores, or rescale the job to a lower parallelism.")
    assert service.epoch() == before
    look_up(state, "word 7", owner("word 7", 24, blocks))
    rescale(graph, 3, shown=24, slots=10)
    expect(problem).to_have_count(0)
    assert service.epoch() > before
    expect(subtasks).to_have_count(3)
    look_up(state, "word 8", owner("word 8", 3, 16))
    for section in SECTIONS:
        page = opened(context, service, f"/{section}")
        expect(parallelism(page)).to_have_text("3")
        expect(page.locator("[role=alert]")).to_have_count(0)
        page.close()
