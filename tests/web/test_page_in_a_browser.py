"""The page in Chromium: log in, watch a job, act on it. No request leaves for another host; hostile text never runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from browsing import CHROMIUM, FLAGS, HOSTILE, needs_browser
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = [pytest.mark.long, needs_browser]

JOB = f"{1:032x}"
SCREENSHOTS = Path(os.environ["PENSTOCK_SCREENSHOTS"]) if "PENSTOCK_SCREENSHOTS" in os.environ else None
"""An empty directory for screenshots of every page, such as those in docs/run."""


class Service:
    """The service in its process."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("page_service.py")), str(folder), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.login = self.process.stdout.readline().strip()
        parts = urlsplit(self.login)
        self.host = parts.netloc
        self.address = f"{parts.scheme}://{parts.netloc}"

    def change(self, command: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def asked(self) -> str:
        """Return what the gateway was asked so far."""
        self.change("asked")
        return (self.folder / "asked").read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service((SCREENSHOTS or tmp_path_factory.mktemp("service")) / "data")
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def session(service: Service, browser: Browser):  # type: ignore[no-untyped-def]
    """Log in once, and return the cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(service.login)
    expect(page.get_by_role("heading", name="Jobs").first).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


class Visit:
    """A page in the browser, and what it requested and logged."""

    def __init__(self, page: Page, service: Service) -> None:
        self.page = page
        self.service = service
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.service.address}/web{path}")
        self.page.locator(".live").first.wait_for()
        return self.page


@pytest.fixture
def visit(service: Service, browser: Browser, session) -> Iterator[Visit]:  # type: ignore[no-untyped-def]
    service.change("")
    context = browser.new_context(storage_state=session)
    made = Visit(context.new_page(), service)
    yield made
    context.close()
    assert made.errors == []
    elsewhere = [url for url in made.requests if urlsplit(url).netloc not in ("", service.host)]
    assert elsewhere == []
    assert any(url.startswith("ws") for url in made.requests)


def test_a_browser_without_a_session_sees_how_to_log_in(service, browser):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(f"{service.address}/web/")
    assert answer.status == 401
    expect(page.get_by_text("penstock web")).to_be_visible()
    context.close()


def test_the_login_link_works_once(service, browser, session):
    context = browser.new_context()
    page = context.new_page()
    assert page.goto(service.login).status == 401
    context.close()


def test_scripts_cannot_read_the_cookie(visit):
    assert visit.open("/").evaluate("document.cookie") == ""


def test_a_problem_appears_on_the_open_page_and_disappears_with_its_cause(visit, service):
    page = visit.open("/")
    expect(page.locator("#problems")).to_contain_text("None found.")
    service.change("restarting")
    problem = page.locator(".problems li[data-kind=restarting]")
    expect(problem).to_contain_text("after 2 restarts")
    expect(problem).to_contain_text("Next:")
    service.change("")
    expect(page.locator("#problems")).to_contain_text("None found.")


def test_the_overview_leads_to_the_graph_and_a_box_to_its_subtasks(visit):
    page = visit.open("/")
    page.get_by_role("link", name="job running").click()
    expect(page.get_by_role("heading", name="job running")).to_be_visible()
    page.locator("a.vertex").nth(1).click()
    expect(page.get_by_role("table", name="Subtasks")).to_be_visible()


@pytest.mark.parametrize(
    "section", ["graph", "charts", "checkpoints", "exceptions", "configuration", "plan", "executors"]
)
def test_every_section_can_be_reached_with_the_keyboard(visit, section):
    page = visit.open(f"/jobs/{JOB}")
    link = page.locator(f"#section-{section}")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator(f"#section-{section}[aria-current=page]")).to_be_visible()


def test_hostile_text_is_shown_and_not_run(visit, service):
    service.change("hostile")
    for path in ("/", f"/jobs/{JOB}", f"/jobs/{JOB}/exceptions", f"/jobs/{JOB}/configuration"):
        page = visit.open(path)
        expect(page.get_by_text("{{ 6 * 7 }}").first).to_be_visible()
        assert page.locator("img").count() == 0
        assert page.title() != "stolen"


def test_a_savepoint_is_made_after_a_confirmation_and_its_path_is_shown_as_text(visit, service):
    service.change("savepoint")
    page = visit.open(f"/jobs/{JOB}")
    page.get_by_role("button", name="Savepoint").click()
    assert "MakeSavepoint" not in service.asked()
    page.get_by_role("dialog").get_by_role("button", name="Savepoint").click()
    expect(page.get_by_text("/savepoints/<b>one</b>")).to_be_visible()
    assert "MakeSavepoint" in service.asked()


def test_a_job_is_cancelled_only_after_a_confirmation(visit, service):
    page = visit.open(f"/jobs/{JOB}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    assert "'cancel'" not in service.asked()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_text("The job is being cancelled.")).to_be_visible()
    assert "'cancel'" in service.asked()


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_no_page_is_wider_than_the_window(visit, width):
    visit.page.set_viewport_size({"width": width, "height": 900})
    for path in ("/", f"/jobs/{JOB}", f"/jobs/{JOB}/charts", f"/jobs/{JOB}/checkpoints", f"/jobs/{JOB}/exceptions"):
        page = visit.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_refresh_keeps_the_focus(visit, service):
    page = visit.open("/")
    page.locator(f"#job-{JOB}").focus()
    service.change("restarting")
    expect(page.locator(".problems li")).to_be_visible()
    expect(page.locator(f"#job-{JOB}")).to_be_focused()


def test_a_key_is_looked_up_in_the_newest_checkpoint(visit):
    page = visit.open(f"/jobs/{JOB}/state")
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Rows 1 to 4, the last one")
    page.get_by_label("Key", exact=True).fill("river")
    page.get_by_role("button", name="Look up").click()
    expect(result).to_contain_text("Key group")
    expect(result.locator("code").nth(1)).to_have_text("2")
    expect(result).to_contain_text("Not live: queryable-state.enable is not true for this job")
    page.get_by_role("button", name="History").click()
    expect(result).to_contain_text("History of river")


def shown_state(visit: Visit, query: str = ""):  # type: ignore[no-untyped-def]
    """Open the state browser, and return its page and result once it shows rows."""
    page = visit.open(f"/jobs/{JOB}/state{query}")
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Rows 1 to")
    return page, result


def test_an_example_is_looked_up_by_choosing_it(visit):
    page, result = shown_state(visit)
    expect(page.get_by_text("Keys are of type str.")).to_be_visible()
    page.locator(".examples").get_by_role("button", name="river").click()
    expect(result).to_contain_text("Key river")
    expect(page.get_by_label("Key", exact=True)).to_have_value("river")


def test_rows_are_searched_by_a_condition_and_an_error_is_in_words(visit):
    page, result = shown_state(visit)
    page.get_by_label("Rows where").fill("value > 1")
    page.get_by_role("button", name="Search").click()
    expect(result).to_contain_text("Rows 1 to 1, the last one")
    expect(result.locator("td").first).to_have_text("river")
    page.get_by_label("Rows where").fill("price > 1")
    page.get_by_label("Rows where").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The state has no column 'price', only key, value.")


def test_a_savepoint_is_compared_with_the_newest_checkpoint(visit):
    page, result = shown_state(visit)
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="savepoint").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(result).to_contain_text("1 changed, 1 added, 0 removed of 4 keys.")
    rows = result.get_by_role("table", name="Differences").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("changed")
    expect(rows.nth(0).locator("td").nth(1)).to_have_text("river")
    expect(rows.nth(1).locator("td").nth(1)).to_have_text("delta")


def test_a_job_with_checkpoints_in_memory_names_the_settings_that_show_its_state(visit, service):
    service.change("in memory")
    page = visit.open(f"/jobs/{JOB}/state")
    expect(page.get_by_text("where this page cannot read them. Set state.checkpoints.dir")).to_be_visible()
    expect(page.get_by_text("set queryable-state.enable to true.")).to_be_visible()


def test_queryable_state_of_a_job_with_checkpoints_in_memory_is_shown(visit, service):
    service.change("in memory, served")
    page, result = shown_state(visit)
    expect(page.get_by_text("shows the newest values of its queryable states")).to_be_visible()
    expect(page.get_by_text("Keys are of type str.")).to_be_visible()
    page.get_by_label("Key", exact=True).fill("river")
    page.get_by_role("button", name="Look up").click()
    expect(result).to_contain_text("checkpoint 1, live from the job's state server")
    expect(result.locator("code").nth(1)).to_have_text("2")
    page.get_by_label("Rows where").fill("value < 2")
    page.get_by_role("button", name="Search").click()
    expect(result).to_contain_text("Rows 1 to 1, the last one")
    for button in ("History", "Export CSV", "Code for pandas"):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("alert")).to_contain_text("keeps its checkpoints in the memory of its driver")


def test_a_savepoint_leads_to_its_state_and_to_a_form_that_resumes_from_it(visit):
    page = visit.open(f"/jobs/{JOB}/checkpoints")
    page.get_by_role("link", name="Look at its state").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("Rows 1 to 3, the last one")
    saved = page.get_by_label("Moment").input_value()
    page = visit.open(f"/jobs/{JOB}/checkpoints")
    page.get_by_role("link", name="Resume from it").click()
    expect(page.get_by_label("Resume from a savepoint")).to_have_value(re.compile(f"^/.*/{saved}$"))
    expect(page.get_by_text("Leave the savepoint unchanged")).to_be_visible()


def test_a_savepoint_is_deleted_only_after_a_confirmation(visit, service):
    service.change("another savepoint")
    page = visit.open(f"/jobs/{JOB}/checkpoints")
    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    assert "'dispose'" not in service.asked()
    page.get_by_role("button", name="Dispose").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the savepoint").click()
    expect(page.get_by_text("Disposal is complete.")).to_be_visible()
    assert "('dispose', '/savepoints/another')" in service.asked()
    expect(page.get_by_role("button", name="Dispose")).to_have_count(0)


def test_a_hostile_key_is_looked_up_compared_and_shown_as_text(visit, service):
    service.change("hostile")
    page, result = shown_state(visit)
    expect(result).to_contain_text("{{ 6 * 7 }}")
    page.locator(".examples").get_by_role("button", name="{{ 6").or_(
        page.locator(".examples").get_by_role("button", name="<img")
    ).click()
    expect(result).to_contain_text("{{ 6 * 7 }}")
    expect(result).to_contain_text("Key group")
    page.get_by_role("button", name="History").click()
    expect(result).to_contain_text("History of <img")
    look_at_differences(page)
    expect(result).to_contain_text("{{ 6 * 7 }}")
    assert page.locator("img").count() == 0
    assert page.title() != "stolen"


@pytest.mark.parametrize("section", ["checkpoints", "logs", f"state?moment={quote(HOSTILE)}"])
def test_a_hostile_savepoint_log_line_or_address_is_shown_as_text(visit, service, section):
    service.change("hostile savepoint")
    page = visit.open(f"/jobs/{JOB}/{section}")
    expect(page.get_by_text("{{ 6 * 7 }}").first).to_be_visible()
    if section == "checkpoints":
        page.get_by_role("button", name="Dispose").click()
        expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() != "stolen"


def test_a_hostile_link_to_the_form_submits_nothing(visit, service):
    page = visit.open(f"/submit?savepoint={quote(HOSTILE)}")
    expect(page.get_by_label("Resume from a savepoint")).to_have_value(HOSTILE)
    assert page.locator("img").count() == 0
    assert "('run'" not in service.asked()


def test_parts_that_are_turned_off_are_not_there(browser, tmp_path):
    off = [f"web.{part}.enable=false" for part in ("state", "submit", "cancel")]
    service = Service(tmp_path / "service", *off)
    page = browser.new_page()
    page.goto(service.login)
    expect(page.get_by_role("link", name="job running")).to_be_visible()
    expect(page.get_by_role("link", name="Submit a program")).to_have_count(0)
    page.goto(f"{service.address}/web/submit")
    expect(page.get_by_text("This service accepts no programs.")).to_be_visible()
    page.goto(f"{service.address}/web/jobs/{JOB}/state")
    expect(page.get_by_text("Section 'state' does not exist.")).to_be_visible()
    expect(page.get_by_role("button", name="Savepoint")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.goto(f"{service.address}/web/jobs/{JOB}/checkpoints")
    expect(page.get_by_role("button", name="Dispose")).to_be_visible()
    expect(page.get_by_role("link", name="Look at its state")).to_have_count(0)
    expect(page.get_by_role("link", name="Resume from it")).to_have_count(0)
    page.close()
    service.close()


def test_a_state_is_exported(visit):
    page = visit.open(f"/jobs/{JOB}/state")
    expect(page.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 4")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    assert '"river","2"' in Path(download.value.path()).read_text().splitlines()


def test_a_path_without_a_savepoint_is_reported_with_the_next_step(visit):
    page = visit.open(f"/jobs/{JOB}/state")
    expect(page.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 4")
    page.get_by_label("Or the path of a savepoint").fill("/nowhere/<i>x</i>")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("/nowhere/<i>x</i>")


def test_a_log_is_shown_and_filtered(visit):
    page = visit.open(f"/jobs/{JOB}/logs")
    expect(page.locator("pre")).to_contain_text("first line of job-1.out")
    page.get_by_label("Lines that contain").fill("SECOND")
    expect(page.locator("pre")).to_have_text("second line of job-1.out")


def test_the_log_of_an_executor_on_this_host_is_followed(visit, service, tmp_path):
    log = tmp_path / "stderr"
    log.write_text(f"{HOSTILE}\nfirst\n")
    service.change(f"executor in {tmp_path}")
    page = visit.open(f"/jobs/{JOB}/logs")
    expect(page.locator("pre")).to_contain_text("first line of job-1.out")
    expect(page.get_by_role("table", name="Logs of executors")).to_contain_text("Spark gives no address")
    page.get_by_label("File").click()
    page.get_by_role("option", name="executor 7: stderr").click()
    expect(page.locator("pre")).to_have_text(f"{HOSTILE}\nfirst\n")
    with log.open("a") as file:
        file.write("second\n")
    expect(page.locator("pre")).to_contain_text("second")
    page.get_by_label("Lines that contain").fill("SECOND")
    expect(page.locator("pre")).to_have_text("second\n")


def test_a_chosen_chart_is_remembered_by_the_browser_until_it_is_removed(visit):
    page = visit.open(f"/jobs/{JOB}/charts")
    chart = page.get_by_role("heading", name="Job: numRestarts")
    page.get_by_label("Metric").fill("numRestarts")
    page.get_by_role("option", name="Job: numRestarts").click()
    expect(chart).to_be_visible()
    page.wait_for_function("Object.values(localStorage).join().includes('numRestarts')")
    page = visit.open(f"/jobs/{JOB}/charts")
    expect(chart).to_be_visible()
    page.get_by_label("Remove a chart").click()
    page.get_by_role("option", name="Job: numRestarts").click()
    expect(chart).not_to_be_visible()
    # The server asks the browser to forget the chart after it has removed it.
    page.wait_for_function("JSON.stringify(Object.values(localStorage)) === '[\"[]\"]'")
    page = visit.open(f"/jobs/{JOB}/charts")
    expect(page.get_by_role("heading", name="Throughput")).to_be_visible()
    expect(chart).not_to_be_visible()


def test_the_plan_is_drawn_and_downloaded(visit, service):
    service.change("plan")
    page = visit.open(f"/jobs/{JOB}/plan")
    image = page.get_by_role("img", name="Plan of")
    expect(image).to_be_visible()
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("image => image.naturalWidth") > 300
    for text, name, part in (("JSON", "plan.json", '"uid": "numbers"'), ("SVG", "plan.svg", "&lt;img src=x")):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download as {text}").click()
        assert download.value.suggested_filename == name
        assert part in Path(download.value.path()).read_text()


CONTRASTS = """() => {
  const parse = text => { const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number); return [r, g, b, a]; };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = each => {
    for (let at = each; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color[3] > 0.99) return color;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const texts = '.chip, .quiet, a, td, th, dt, dd, p, h1, h2, .severity, .what, .next, .q-btn, summary, figcaption';
  for (const each of document.querySelectorAll(texts)) {
    if (!each.textContent.trim() || !each.checkVisibility() || each.closest('svg') || each.matches('.skip')) continue;
    const [one, other] = [light(parse(getComputedStyle(each).color)), light(behind(each))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const name = each.className || each.tagName;
    if (ratio < 4.5) found.push(`${name}: ${each.textContent.slice(0, 30)} ${ratio.toFixed(1)}`);
  }
  return found;
}"""


def look_at_rows(page: Page) -> None:
    expect(page.get_by_role("region", name="Result")).to_contain_text("Rows 1 to 4")


def look_at_a_key(page: Page) -> None:
    look_at_rows(page)
    page.locator(".examples").get_by_role("button", name="river").click()
    expect(page.get_by_role("region", name="Result")).to_contain_text("Key group")


def look_at_differences(page: Page) -> None:
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="savepoint").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("table", name="Differences")).to_be_visible()


def look_at_rows_and_differences(page: Page) -> None:
    look_at_rows(page)
    look_at_differences(page)


def look_at_a_log(page: Page) -> None:
    expect(page.locator("pre")).to_contain_text("first line")


def look_at_a_question(page: Page) -> None:
    page.get_by_role("button", name="Rescale").click()
    expect(page.get_by_role("dialog")).to_contain_text("slots")


VIEWS = [
    ("overview", "wide 9 restarting", "", None),
    *((each, "wide 9", f"jobs/{JOB}/{each}", None) for each in ("graph", "charts", "checkpoints", "exceptions")),
    *((each, "wide 9", f"jobs/{JOB}/{each}", None) for each in ("configuration", "executors")),
    ("plan", "plan", f"jobs/{JOB}/plan", None),
    ("logs", "wide 9", f"jobs/{JOB}/logs", look_at_a_log),
    ("state", "wide 9", f"jobs/{JOB}/state", look_at_rows),
    ("key", "wide 9", f"jobs/{JOB}/state", look_at_a_key),
    ("comparison", "wide 9", f"jobs/{JOB}/state", look_at_rows_and_differences),
    ("question", "wide 9", f"jobs/{JOB}/graph", look_at_a_question),
    ("submit", "", "submit?savepoint=/savepoints/one", None),
]
"""Every page: its name, the change of the cluster, the path, and what to do there."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_text_has_enough_contrast_and_fits_in_light_and_dark(visit, service, scheme, width):
    """The screenshots in docs/run come from here: set PENSTOCK_SCREENSHOTS to a directory."""
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.set_viewport_size({"width": width, "height": 800})
    for name, command, path, look in VIEWS:
        service.change(command)
        page = visit.open(f"/{path}")
        if look is not None:
            look(page)
        assert page.evaluate(CONTRASTS) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if SCREENSHOTS is not None:
            page.screenshot(path=SCREENSHOTS / f"web-{name}-{width}-{scheme}.png", animations="disabled")


def test_a_program_is_uploaded_and_submitted(visit, service, tmp_path):
    (tmp_path / "<b>job.py").write_text("program")
    page = visit.open("/submit")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("Choose a program first.")
    page.locator("input[type=file]").set_input_files(tmp_path / "<b>job.py")
    expect(page.get_by_text("It does not run yet.")).to_be_visible()
    assert "('run'" not in service.asked()
    page.get_by_label("Add a setting").fill("parallelism.def")
    page.get_by_role("option", name="parallelism.default: ").click()
    settings = page.get_by_label("Settings, one per line: key: value")
    expect(settings).to_have_value("parallelism.default: ")
    settings.fill("parallelism.default: 3")
    page.get_by_label("Resume from a savepoint").fill("/savepoints/one")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("The job would resume from the savepoint.")).to_be_visible()
    assert "('run'" not in service.asked()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("link", name="c" * 32)).to_be_visible()
    assert "claim_mode='NO_CLAIM'" in service.asked()
    assert "'parallelism.default': '3'" in service.asked()
