"""Each walk of docs/internals/architecture.md names existing files and functions."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
WALKS = PAGE[PAGE.index("## Four walks") : PAGE.index("## An epoch")]
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)


def defined(path: Path) -> set[str]:
    """Return the names of functions, and of methods as Class.method."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("file", "function"), sorted(set(STEP.findall(WALKS))))
def test_a_step_names_an_existing_function_of_its_file(file: str, function: str) -> None:
    path = ROOT / "penstock" / file
    assert path.is_file(), f"docs/internals/architecture.md names {file}"
    assert function in defined(path), f"docs/internals/architecture.md names {function} in {file}"


def test_the_page_has_four_walks_that_each_fit_on_a_screen() -> None:
    walks = re.split(r"^\*\*", WALKS, flags=re.MULTILINE)[1:]
    assert len(walks) == 4
    for walk in walks:
        numbered = [line for line in walk.splitlines() if re.match(r"\d+\. ", line)]
        assert len(numbered) == len(STEP.findall(walk)), "every line names a file and a function"
        assert 5 < len(numbered) <= 15


def test_the_path_of_a_program_names_files_that_exist() -> None:
    start = PAGE.index("```\ncli/")
    table = PAGE[start + 4 : PAGE.index("```", start + 4)]
    for line in table.splitlines():
        package, *rest = line.split()
        for name in re.findall(r"[\w*]+\.py", " ".join(rest)):
            assert list((ROOT / "penstock" / package).glob(name)), f"{package}{name}"


def test_the_table_of_starting_points_names_files_that_exist() -> None:
    table = PAGE[PAGE.index("### Where to start") : PAGE.index("## Life cycle of a job")]
    named = re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", table)
    assert len(named) > 30
    for path in named:
        if path not in ("penstock/", "tests/"):
            assert (ROOT / "penstock" / path).exists(), path
