"""The page of a real job on Spark: records flow, a key equals the stored state, a savepoint is made, the job stops."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser
from playwright.sync_api import expect, sync_playwright
from service_host import COUNTS, SMALL, ServiceHost

from penstock.tables import Savepoint

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
