"""The contents of the pages: hostile text stays text, every section renders every job, problems come first."""

import json
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest
from snapshot_jobs import running
from watched_jobs import SOURCE, epochs, job, subtask, vertex, with_vertex

from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.job_snapshot import (
    CheckpointSnapshot,
    CheckpointsSnapshot,
    ExceptionSnapshot,
    ExecutorSnapshot,
    JobSnapshot,
    OperatorFacts,
    TaskCheckpoint,
    VertexInput,
)
from penstock.web.job_sections import SECTIONS, heading, navigation, vertex_section
from penstock.web.markup import Markup, job_path, tag
from penstock.web.observation import Watch, Watches
from penstock.web.overview import overview

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>'"&{{ 1 + 1 }}"""
SAFE_TAGS = {
    *("a", "b", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure", "g", "h1", "h2", "h3", "i", "li"),
    *("nav", "p", "path", "polyline", "pre", "rect", "section", "span", "strong", "summary", "svg", "table", "tbody"),
    *("img", "td", "text", "th", "thead", "time", "title", "tr", "ul"),
}

DOWNLOADS = tuple(f"data:{each};base64," for each in ("text/plain", "application/json", "image/svg+xml"))


class Parsed(HTMLParser):
    """The elements and the text of a page. Checks that elements are closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def hostile_job() -> JobSnapshot:
    """Return a job all of whose text is hostile."""
    failure = ExceptionSnapshot(name=HOSTILE, message=HOSTILE, trace=HOSTILE, task=HOSTILE, host=HOSTILE)
    made = CheckpointSnapshot(
        id=3,
        status="FAILED",
        savepoint=True,
        path=HOSTILE,
        failure=HOSTILE,
        tasks=[TaskCheckpoint(vertex=SOURCE, subtasks=2)],
    )
    facts = {
        **{"name": HOSTILE, "reason": HOSTILE, "plan": HOSTILE, "restart_strategy": HOSTILE, "state": "RESTARTING"},
        **{"configuration": {HOSTILE: HOSTILE}, "parameters": {HOSTILE: HOSTILE}},
        "exceptions": [failure, msgspec.structs.replace(failure, concurrent=[failure])],
        "checkpoints": CheckpointsSnapshot(history=[made]),
        "executors": [ExecutorSnapshot(id=HOSTILE, address=HOSTILE, logs={HOSTILE: HOSTILE})],
    }
    changed = with_vertex(
        job(5, **facts),
        0,
        name=HOSTILE,
        uid=HOSTILE,
        operators=[OperatorFacts(uid=HOSTILE, name=HOSTILE, kind=HOSTILE)],
        subtasks=[subtask(1, host=HOSTILE)],
        metrics={f"{HOSTILE}.numLateRecordsDropped": [5]},
        driver_metrics={"backlog": 5},
    )
    return changed


def rendered(snapshot: JobSnapshot) -> dict[str, Markup]:
    watch, watches = Watch(), Watches()
    watch.observe(snapshot)
    watches.observe([snapshot])
    now = snapshot.taken_ms + 500
    return {
        **{name: section(snapshot, watch) for name, section in SECTIONS.items()},
        "heading": heading(snapshot, watch, now),
        "navigation": navigation(snapshot, "graph"),
        "vertex": vertex_section(snapshot, SOURCE),
        "overview": overview([snapshot], watches, now),
    }


def test_hostile_text_is_shown_as_text_everywhere():
    for name, html in rendered(hostile_job()).items():
        parsed = Parsed(html)
        assert {each for each, _ in parsed.tags} <= SAFE_TAGS, name
        for element, attributes in parsed.tags:
            assert not [each for each in attributes if each.startswith("on")], (name, element)
            link = attributes.get("href")
            assert link is None or link.startswith(("/web/", *DOWNLOADS)), (name, link)
            assert element != "img" or attributes["src"].startswith("data:image/svg+xml;base64,")
        if name != "navigation":
            assert HOSTILE in parsed.text or HOSTILE[:20] in parsed.text, name


@pytest.mark.parametrize("state", ["INITIALIZING", "CREATED", "RUNNING", "FAILED", "FINISHED"])
def test_a_job_without_any_facts_has_every_section(state):
    for html in rendered(JobSnapshot(id="1" * 32, name="bare", state=state)).values():
        assert Parsed(html).text


def test_a_hostile_job_id_stays_within_its_path():
    assert job_path("../../x?y#z", "a/b") == "/web/jobs/..%2F..%2Fx%3Fy%23z/a%2Fb"


def test_everything_except_markup_is_escaped():
    assert tag("p", "<b>", tag("b", "<i>")) == "<p>&lt;b&gt;<b>&lt;i&gt;</b></p>"
    assert tag("a", "x", title='"><b>') == '<a title="&quot;&gt;&lt;b&gt;">x</a>'


def test_problems_come_before_jobs_and_running_jobs_before_ended_ones():
    slow = msgspec.structs.replace(
        job(9), name="slow", id="2" * 32, recent_epochs=epochs(6, duration_ms=2000.0, stages_ms=[1, 1800])
    )
    done = msgspec.structs.replace(job(9), name="done", id="3" * 32, state="FINISHED", ended_ms=job(9).taken_ms)
    failed = msgspec.structs.replace(job(9), name="lost", id="4" * 32, state="FAILED", ended_ms=job(9).taken_ms)
    watches = Watches()
    watches.observe([done, failed, slow])
    html = overview([done, failed, slow], watches, job(9).taken_ms)
    text = Parsed(html).text
    assert text.index("The sinks hold up") < text.index("The job failed") < text.index("Event-time lag")
    rows = [
        attributes["id"] for element, attributes in Parsed(html).tags if (attributes.get("id") or "").startswith("job-")
    ]
    assert rows == [f"job-{'2' * 32}", f"job-{'4' * 32}", f"job-{'3' * 32}"]


def test_a_job_row_has_units():
    watches = Watches()
    watches.observe([job(9)])
    text = Parsed(overview([job(9)], watches, job(9).taken_ms + 3000)).text
    assert "200 records/s" in text
    assert "3.0 s ago, took 80 ms, 0 B" in text


def test_the_graph_links_each_box_to_its_chain_and_shows_rates():
    parsed = Parsed(SECTIONS["graph"](job(9), Watch()))
    assert f"/web/jobs/{'1' * 32}/graph?vertex={SOURCE}" in [attributes.get("href") for _, attributes in parsed.tags]
    assert "0 rec/s" in parsed.text


def downloads(html: str) -> dict[str, str]:
    """Return the contents of the links to download, by file name."""
    links = [attributes for element, attributes in Parsed(html).tags if "download" in attributes]
    return {each["download"]: b64decode(each["href"].partition(",")[2]).decode() for each in links}


def test_the_plan_can_be_downloaded_as_text_json_and_svg(tmp_path):
    found = downloads(SECTIONS["plan"](running(tmp_path), Watch()))
    assert "last  (parallelism 2)\n    " in found["plan.txt"]
    assert {"words", "parse", "last", "upper"} <= {node["uid"] for node in json.loads(found["plan.json"])["nodes"]}
    drawing = ElementTree.fromstring(found["plan.svg"])
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert any("upper" in (each.text or "") for each in drawing.iter())


def test_hostile_names_stay_text_in_the_drawing_of_the_plan():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).name(HOSTILE).uid(HOSTILE).rebalance().map(str).name(HOSTILE).print().name(HOSTILE)
    snapshot = JobSnapshot(id="1" * 32, name=HOSTILE, state="RUNNING", plan=env.get_execution_plan())
    drawing = ElementTree.fromstring(downloads(SECTIONS["plan"](snapshot, Watch()))["plan.svg"])
    tags = {each.tag.rpartition("}")[2] for each in drawing.iter()}
    assert tags <= {"svg", "style", "defs", "marker", "path", "rect", "g", "title", "text"}
    assert any(HOSTILE in (each.text or "") for each in drawing.iter())


@pytest.mark.parametrize("plan", ["", "[]", '{"nodes": [{}]}', '{"nodes": 3}', "not JSON"])
def test_a_plan_that_cannot_be_drawn_is_shown_as_it_is(plan):
    text = Parsed(SECTIONS["plan"](JobSnapshot(id="1" * 32, name="a", state="RUNNING", plan=plan), Watch())).text
    assert "The plan cannot be drawn." in text


def test_the_edges_of_a_chain_share_its_rates_by_what_each_has_sent():
    sender = subtask(9, records_out_rate=1000.0, bytes_out_rate=4096.0)
    first = vertex(SOURCE, "lines", [sender])
    first = msgspec.structs.replace(
        first,
        metrics={
            "lines.numRecordsOut": [100],
            **{"lines.to.left.numRecordsOut": [90], "lines.to.right.numRecordsOut": [10]},
            **{"lines.to.left.numBytesOut": [300], "lines.to.right.numBytesOut": [100]},
        },
    )
    inputs = [VertexInput(vertex=SOURCE, strategy="HASH")]
    others = [vertex(name[0] * 32, name, [subtask(1)], level=1, inputs=inputs) for name in ("left", "right")]
    text = Parsed(SECTIONS["graph"](job(9, vertices=[first, *others]), Watch())).text
    assert "lines to left: HASH, 900 records/s, 3.0 KiB/s" in text
    assert "lines to right: HASH, 100 records/s, 1.0 KiB/s" in text


def test_charts_show_the_newest_values_with_units():
    watch = Watch()
    for at in range(5):
        watch.observe(job(at))
    text = Parsed(SECTIONS["charts"](job(4), watch)).text
    assert "100 records/s" in text
    assert "1.0 MiB" in text
    assert "stage 1" in text


def test_the_state_of_an_executor_is_shown_apart_from_what_it_follows():
    found = ExecutorSnapshot(id="7", blocks=16, block_bytes=3 << 20, standby_blocks=1, standby_bytes=1 << 10)
    text = Parsed(SECTIONS["executors"](job(9, executors=[found, ExecutorSnapshot(id="8")]), Watch())).text
    assert "73.0 MiB in 16 blocks1.0 KiB in 1 block–8–––" in text
