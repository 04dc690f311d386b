"""What a notebook shows of environments, streams, jobs and errors. It starts no Spark, and raises nothing."""

from __future__ import annotations

import sys
from base64 import b64decode
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from snapshot_jobs import failed, finished, running

from penstock.common import Configuration, Types
from penstock.common.error_format import ShortExceptHook
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.job_client import LocalJobClient
from penstock.errors import PenstockError

HOSTILE = "<script>alert(1)</script>"


class Parsed(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.images: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "img":
            self.images.append(b64decode(dict(attrs)["src"].partition(",")[2]).decode())

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def environment(**settings: str) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration.from_dict({k.replace("__", "."): v for k, v in settings.items()}))


def words(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection(["a"]).uid("words").map(str.upper, output_type=Types.STRING()).name("upper").uid("upper")


def test_an_environment_shows_its_plan_and_its_settings_without_secrets() -> None:
    env = environment(parallelism__default="2", spark__ssl__keyPassword="hunter2")
    assert "No streams yet." in Parsed(env._repr_html_()).text
    words(env).print()
    assert repr(env) == "<StreamExecutionEnvironment with 3 operators>"
    shown = Parsed(env._repr_html_())
    assert "parallelism.default 2" in " ".join(shown.text.split())
    assert "hunter2" not in shown.text
    (drawing,) = shown.images
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert "upper" in drawing


def test_a_stream_shows_its_operator_and_type() -> None:
    stream = words(environment())
    assert repr(stream) == "<DataStream of 'upper', uid 'upper', of type String>"
    shown = Parsed(stream._repr_html_())
    assert "type String" in " ".join(shown.text.split())
    assert len(shown.images) == 1


def test_streams_without_an_operator_or_a_uid_have_a_text_too() -> None:
    env = environment()
    stream, other = words(env), env.from_collection([1])
    assert repr(other) == "<DataStream of 'Collection', without a uid, of type PickledByteArrayTypeInfo>"
    assert repr(stream.union(other)).startswith("<DataStream: a union of 2 streams, of type ")
    assert repr(stream.key_by(lambda word: word)).startswith("<KeyedStream of 'upper', uid 'upper', of type ")
    for each in (other, stream.union(other), stream.key_by(lambda word: word)):
        assert "<div>" in each._repr_html_()


def test_a_plan_that_cannot_be_built_shows_the_problem_and_the_fix() -> None:
    env = environment()
    env.from_collection([1]).map(str).uid("same").map(str).uid("same").print()
    text = " ".join(Parsed(env._repr_html_()).text.split())
    assert "'same'" in text
    assert "Fix:" in text or "uid" in text


def test_a_stream_of_a_remote_cluster_is_shown_without_starting_spark() -> None:
    env = environment(spark__master="spark://nowhere.invalid:7077")
    assert len(Parsed(words(env)._repr_html_()).images) == 1
    assert env._spark is None


def test_hostile_names_are_shown_as_text() -> None:
    env = environment()
    stream = env.from_collection([1]).name(HOSTILE).uid(HOSTILE)
    for html in (stream._repr_html_(), env._repr_html_()):
        assert "script" not in Parsed(html).tags
    assert HOSTILE in Parsed(stream._repr_html_()).text


# -- jobs --------------------------------------------------------------------------------------------------------------


def client_of(snapshot: Any) -> LocalJobClient:
    return LocalJobClient(SimpleNamespace(snapshot=lambda: snapshot), lambda directory: None)  # type: ignore[arg-type]


def test_a_client_shows_the_state_of_its_job(tmp_path) -> None:
    client = client_of(running(tmp_path))
    assert repr(client).endswith(": RUNNING, 2 epochs>")
    text = " ".join(Parsed(client._repr_html_()).text.split())
    assert "state RUNNING epochs 2 restarts 0 last checkpoint 2, took " in text


def test_a_failed_job_shows_its_failure() -> None:
    assert "last failure ValueError: " in " ".join(Parsed(client_of(failed())._repr_html_()).text.split())


class Displayed(list):
    """A running IPython, and what it displays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handlers: dict[Any, Any] = {}
        self.tracebacks: list[Any] = []
        shell = SimpleNamespace(
            custom_exceptions=(),
            compile=SimpleNamespace(format_code_name=lambda file: ("Cell", "In[3]") if file == "<cell>" else None),
            set_custom_exc=lambda kinds, handler: self.handlers.update(dict.fromkeys(kinds, handler)),
            _showtraceback=lambda kind, error, lines: self.tracebacks.append(lines),
            showtraceback=lambda *args, **named: self.tracebacks.append("full"),
        )
        self.shell = shell
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = lambda html: html  # type: ignore[attr-defined]
        display.display = self.append  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)


def test_show_displays_the_plan_and_charts_in_a_notebook(tmp_path, monkeypatch, capsys) -> None:
    displayed = Displayed(monkeypatch)
    client_of(running(tmp_path)).show()
    (html,) = displayed
    shown = Parsed(html)
    assert {"svg", "polyline", "img", "table"} <= shown.tags
    for title in ("Throughput", "Epoch duration", "State size"):
        assert title in shown.text
    assert "upper" in shown.images[0]
    assert capsys.readouterr().out == ""


def test_show_prints_a_line_outside_a_notebook(tmp_path, capsys) -> None:
    client_of(finished(tmp_path)).show()
    assert capsys.readouterr().out.startswith("<JobClient of 'harness', job ")


def test_an_error_in_a_notebook_ends_with_its_fix(monkeypatch) -> None:
    displayed = Displayed(monkeypatch)
    ShortExceptHook.install()
    (handler,) = displayed.handlers.values()
    try:
        raise PenstockError("This is wrong.", fix="Do that.")
    except PenstockError as error:
        lines = handler(displayed.shell, type(error), error, error.__traceback__)
    assert lines[-1] == "Fix: Do that."
    assert "PenstockError: This is wrong." in lines[0]
    assert displayed.tracebacks == [lines]


def test_the_whole_traceback_is_shown_in_a_notebook_if_it_is_asked_for(monkeypatch) -> None:
    displayed = Displayed(monkeypatch)
    ShortExceptHook.install()
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full")
    (handler,) = displayed.handlers.values()
    error = PenstockError("This is wrong.", fix="Do that.")
    assert handler(displayed.shell, type(error), error, None) is None
    assert displayed.tracebacks == ["full"]


def test_an_error_in_a_cell_names_the_cell_and_no_frame_of_the_notebook(monkeypatch) -> None:
    displayed = Displayed(monkeypatch)
    ShortExceptHook.install()
    (handler,) = displayed.handlers.values()
    names = {"__name__": "IPython.core.interactiveshell", "PenstockError": PenstockError}
    names["cell"] = compile("\nraise PenstockError('This is wrong.', fix='Do that.')", "<cell>", "exec")
    with pytest.raises(PenstockError) as raised:
        exec(compile("exec(cell, {'PenstockError': PenstockError})", "/opt/IPython/shell.py", "exec"), names)
    # IPython gives the traceback from its own frame on.
    lines = handler(displayed.shell, PenstockError, raised.value, raised.tb.tb_next)
    assert lines == ["Cell In[3], line 2: PenstockError: This is wrong.", "Fix: Do that."]
