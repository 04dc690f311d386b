"""The pages below docs/run: their programs run."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import JobHarness

RUN = Path(__file__).parents[2] / "docs" / "run"


def run(page: str) -> dict[str, Any]:
    """Run the programs of a page as one, and return its names."""
    names: dict[str, Any] = {"__name__": page.replace("-", "_")}
    for program in re.findall(r"```python\n(.*?)```", (RUN / f"{page}.md").read_text(), re.DOTALL):
        exec(compile(program, f"{page}.md", "exec"), names)
    return names


def test_a_backend_of_the_page_opens_its_replicas_where_the_setting_says(tmp_path: Path) -> None:
    names = run("backends")
    assert names["env"].get_configuration().get_string("state.backend", "") == "rocksdb"
    factory = names["Elsewhere"]({"custom.root": str(tmp_path)})
    assert not factory.open("/some/replica").position()
    assert (tmp_path / "some-replica").exists()
    factory.drop("/some/replica")
    assert not (tmp_path / "some-replica").exists()


def test_calls_win_over_the_defaults_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONF", "")
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "parallelism.default: 9")
    names = run("configuration")
    assert names["env"].get_parallelism() == 2


def test_credits_of_the_page_fit_its_target() -> None:
    names = run("flow-control")
    assert names["metrics"]["numbers.backlog"] > 900_000


def test_the_first_job_of_the_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (RUN / "local.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [shown] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert program.endswith('env.execute("ticks")\n')
    names: dict[str, Any] = {"__name__": "local_page"}
    exec(program.replace('env.execute("ticks")\n', ""), names)
    with JobHarness(names["env"], parallelism=2) as job:
        job.epoch(6)
    assert set(shown.splitlines()) <= set(capsys.readouterr().out.splitlines())


def test_the_stream_of_the_page_about_notebooks_shows_its_plan() -> None:
    page = (RUN / "notebooks.md").read_text()
    names: dict[str, Any] = {"__name__": "notebooks_page"}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    assert repr(names["upper"]) == "<DataStream of 'upper', uid 'upper', of type PickledByteArrayTypeInfo>"
    assert "data:image/svg+xml" in names["upper"]._repr_html_()
    [message] = re.findall(r"GraphError: (.*)\n", page)
    [fix] = re.findall(r"Fix: (.*)\n", page)
    [line, declared] = re.findall(r"^    (.*)\n", page[page.index("GraphError: ") :], re.MULTILINE)
    assert declared in page[: page.index("GraphError: ")]
    html = unescape(eval(line, names)._repr_html_())
    assert message in html
    assert fix in html
