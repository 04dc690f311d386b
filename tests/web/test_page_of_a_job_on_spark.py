"""The page of a real job on Spark: records flow, a key equals the stored state, a savepoint is made, the job stops.

Another job keeps its checkpoints in memory and receives a record that it cannot read.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser
from playwright.sync_api import expect, sync_playwright
from query_jobs import free_ports
from service_host import COUNTS, SMALL, ServiceHost

from penstock.tables import Savepoint

WORDS = """\
from pathlib import Path

from penstock.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.datastream.state import ValueStateDescriptor

LINES = Path(__file__).with_name("words.txt")
BROKEN = OutputTag("broken")


class Words(Source):
    bounded = False

    def advance(self, positions, limit):
        return {"0": len(LINES.read_text().splitlines())}

    def read(self, split, start, end):
        for number, line in enumerate(LINES.read_text().splitlines()[start or 0 : end], start or 0):
            yield line if line.isalpha() else self.unreadable("words.txt", f"line {number}", line, "not a word")


class Count(KeyedProcessFunction):
    def open(self, context):
        descriptor = ValueStateDescriptor("seen", int)
        descriptor.set_queryable("seen")
        self.seen = context.get_state(descriptor)

    def process_element(self, word, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield word


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_source(Words(), source_name="words", dead_letters=BROKEN)
words.get_side_output(BROKEN).print()
words.key_by(lambda word: word).process(Count()).uid("count").print()
env.execute("words")
"""
"""A program that counts the words of a file, with checkpoints in memory and queryable state."""

pytestmark = [pytest.mark.spark, pytest.mark.long, needs_browser]


def test_a_job_is_watched_read_saved_and_stopped_from_its_page(tmp_path: Path) -> None:
    settings = {**SMALL, "state.savepoints.dir": str(tmp_path / "saved"), "state.checkpoints.dir": str(tmp_path / "cp")}
    host = ServiceHost(tmp_path, settings)
    (tmp_path / "counts.py").write_text(COUNTS)
    with open(tmp_path / "err", "w") as errors:
        process = subprocess.Popen(
            host.command("run", "--web", "-q", "counts.py", "north"),
            cwd=tmp_path,
            env=host.environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        host.until(lambda: "Page: " in (tmp_path / "err").read_text())
        (link,) = [line[6:] for line in (tmp_path / "err").read_text().splitlines() if line.startswith("Page: ")]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page()
            page.goto(link)
            job = page.get_by_role("link", name="north", exact=True)
            job.wait_for(timeout=120_000)
            expect(page.locator("#jobs tbody tr")).to_contain_text("running", timeout=120_000)
            job.click()
            # Six records per epoch and two epochs per second: any rate but none.
            expect(page.locator("svg.graph g.edge text").first).not_to_have_text("0 rec/s")
            # The state of a job that has just started is empty. The page reads it again until it has rows.
            page.locator("#section-state").click()
            result = page.get_by_role("region", name="Result")
            expect(result).to_contain_text("Rows 1 to 3")
            page.get_by_role("button", name="Savepoint").click()
            page.get_by_role("dialog").get_by_role("button", name="Savepoint").click()
            expect(page.get_by_text("Savepoint is complete.")).to_be_visible()
            page.get_by_role("button", name="Close").click()

            # The key has the value that the state tables read.
            (saved,) = (tmp_path / "saved").iterdir()
            page.get_by_label("Or the path of a savepoint").fill(str(saved))
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_label("Moment")).to_have_value(saved.name)
            page.get_by_label("Key", exact=True).fill("sensor-1")
            page.get_by_role("button", name="Look up").click()
            expect(result).to_contain_text("Key group")
            ((info, rows),) = [
                (each, Savepoint.load(saved).state("count", each.name).get("sensor-1"))
                for each in Savepoint.load(saved).states("count")
            ]
            assert info.uid == "count"
            expect(result).to_contain_text(
                str(rows[0]["value"]["f1"] if "f1" in rows[0]["value"] else rows[0]["value"])
            )

            page.get_by_role("button", name="Stop", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
            assert process.wait(120) == 0
            browser.close()
        assert len(list((tmp_path / "saved").iterdir())) == 2
    finally:
        process.kill()
        process.wait()


def test_dead_letters_and_queryable_state_in_memory_are_shown(tmp_path: Path) -> None:
    proxy, server = free_ports(2)
    settings = {
        **SMALL,
        "state.backend.type": "memory",
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(proxy),
        "queryable-state.server.ports": str(server),
        "queryable-state.auth.token-file": str(tmp_path / "query-token"),
    }
    host = ServiceHost(tmp_path, settings)
    (tmp_path / "job.py").write_text(WORDS)
    (tmp_path / "words.txt").write_text("river\nlake\nriver\n")
    with open(tmp_path / "err", "w") as errors:
        process = subprocess.Popen(
            host.command("run", "--web", "-q", "job.py"),
            cwd=tmp_path,
            env=host.environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        host.until(lambda: "Page: " in (tmp_path / "err").read_text())
        (link,) = [line[6:] for line in (tmp_path / "err").read_text().splitlines() if line.startswith("Page: ")]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page()
            page.goto(link)
            page.get_by_role("link", name="words", exact=True).click(timeout=120_000)
            page.locator("#section-state").click()
            result = page.get_by_role("region", name="Result")
            expect(result).to_contain_text("Rows 1 to 2", timeout=120_000)
            expect(page.get_by_text("shows the newest values of its queryable states")).to_be_visible()
            page.get_by_label("Key", exact=True).fill("river")
            page.get_by_role("button", name="Look up").click()
            expect(result).to_contain_text("live from the job's state server")
            expect(result.locator("code").nth(1)).to_have_text("2")
            expect(page.locator("li[data-kind=dead-letters]")).to_have_count(0)
            with open(tmp_path / "words.txt", "a") as words:
                words.write("r1ver\n")
            hint = page.locator("li[data-kind=dead-letters]")
            expect(hint).to_contain_text("Source 'words' could not read 1 record", timeout=60_000)
            browser.close()
    finally:
        process.kill()
        process.wait()
