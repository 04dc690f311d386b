"""The page of a real Dispatcher: `penstock web` opens it, and it survives the death of the Dispatcher."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser
from playwright.sync_api import expect, sync_playwright
from service_host import ServiceHost

from chaos.servers.ports import free_port
from penstock.cluster.service_lock import holder_of, is_held

pytestmark = [pytest.mark.long, pytest.mark.slow, needs_browser]


def test_an_open_page_survives_the_death_of_the_dispatcher(tmp_path: Path) -> None:
    port = free_port()
    host = ServiceHost(tmp_path, {"rest.port": str(port), "web.refresh-interval": "1 s"})
    try:
        started = host.run("cluster", "start")
        assert f"Page: http://127.0.0.1:{port}/web/login?code=" in started.stderr
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page()
            page.goto(host.said("web"))
            expect(page.get_by_text("No jobs.")).to_be_visible()
            holder = holder_of(host.cluster / "lock")
            assert holder is not None
            os.kill(holder.pid, signal.SIGKILL)
            host.until(lambda: not is_held(host.cluster / "lock"))
            # The browser connects again by itself, with the session it has.
            with page.expect_response(lambda answer: answer.url.endswith("/web/") and answer.ok, timeout=60_000):
                assert host.run("cluster", "start").returncode == 0
            expect(page.get_by_text("No jobs.")).to_be_visible()
            browser.close()
    finally:
        host.close()
