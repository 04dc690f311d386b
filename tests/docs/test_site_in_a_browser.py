"""The built site in Chromium, from disk: navigation, search, narrow screens; no request leaves for another host."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, PATIENCE_MS
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = pytest.mark.long
expect.set_options(timeout=PATIENCE_MS)

SECTIONS = [
    "Start",
    "Write jobs",
    "Connect",
    "Run",
    "Operate",
    "Query state",
    "Migrate",
    "Internals",
    "Reference",
]
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "No Chromium found. Run `make browser`, or point CHROMIUM at one."
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


class Visit:
    """A page in the browser, and what it requested and logged."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page = page
        self.site = site
        self.requests: list[str] = []
        self.problems: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", lambda request: self.problems.append(f"not loaded: {request.url}"))
        page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))

    def open(self, name: str) -> None:
        self.page.goto(f"file://{self.site / name}")

    @property
    def other_hosts(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("file://", "data:", "blob:"))]


@pytest.fixture
def visit(browser: Browser, site: Path) -> Iterator[Visit]:
    context = browser.new_context(viewport=WIDE)
    visited = Visit(context.new_page(), site)
    yield visited
    context.close()
    assert visited.other_hosts == []
    assert visited.problems == []


def test_a_reader_reaches_every_section_and_its_pages_by_clicking(visit: Visit) -> None:
    visit.open("index.html")
    for section in SECTIONS:
        visit.page.get_by_role("navigation").get_by_role("link", name=section, exact=True).first.click()
        expect(visit.page.locator("h1")).to_contain_text(section)
        first = visit.page.locator(".bd-article .sd-card").first
        first.click()
        expect(visit.page.locator("article h1")).to_be_visible()
    assert len(visit.requests) > 3 * len(SECTIONS)


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("watermark", "write/event-time.html"),
        ("backpressure", "run/flow-control.html"),
        ("replayable", "operate/guarantees.html"),
        ("NotRestorable", "reference/errors.html"),
        ("ValueStateDescriptor", "reference/api/state.html"),
    ],
)
def test_search_finds_a_page_by_the_word_a_reader_types(visit: Visit, words: str, page: str) -> None:
    visit.open("index.html")
    visit.page.keyboard.press("Control+k")
    visit.page.locator("input[name=q]:visible").fill(words)
    visit.page.keyboard.press("Enter")
    results = visit.page.locator("#search-results li a")
    expect(visit.page.locator("#search-results .search-summary")).to_contain_text("found")
    targets = [results.nth(at).get_attribute("href") or "" for at in range(results.count())]
    assert any(target.split("#")[0].split("?")[0].endswith(page) for target in targets), targets
    results.first.click()
    expect(visit.page.locator("article h1")).to_be_visible()


PAGES = [
    "index",
    "start/first-steps",
    "operate/recovery",
    "reference/errors",
    "reference/settings",
    "reference/api/streams",
]
CLIPPED = """
[...document.querySelectorAll("p code, li code, h1, h2, h3, .sd-card, .sig-name")]
  .filter(each => each.closest("article") && !each.closest("table, pre"))
  .filter(each => each.getBoundingClientRect().right > window.innerWidth)
  .map(each => each.textContent)
"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_a_page_fits_the_width_of_the_screen(visit: Visit, name: str, viewport: dict[str, int]) -> None:
    visit.page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
    visit.open(f"{name}.html")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert visit.page.evaluate(CLIPPED) == []
    narrow = "[...document.querySelectorAll('article td')].filter(each => each.getBoundingClientRect().width < 100)"
    assert visit.page.evaluate(f"{narrow}.map(each => each.textContent)") == []


def test_the_menu_opens_on_a_narrow_screen(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": NARROW["width"], "height": NARROW["height"]})
    visit.open("index.html")
    visit.page.locator("button.primary-toggle").click()
    link = visit.page.locator("#pst-primary-sidebar-modal").get_by_role("link", name="Operate", exact=True)
    link.click()
    expect(visit.page.locator("h1")).to_contain_text("Operate")
