"""Every page shows the imports of the names it uses, in its code or in its section on imports."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [
    "penstock.common",
    "penstock.datastream",
    "penstock.datastream.state",
    "penstock.datastream.window",
    "penstock.datastream.functions",
    "penstock.datastream.time_domain",
    "penstock.datastream.iterations",
    "penstock.datastream.formats.csv",
    "penstock.datastream.formats.json",
    "penstock.datastream.formats.orc",
    "penstock.datastream.formats.parquet",
    "penstock.datastream.connectors",
    "penstock.datastream.connectors.base",
    "penstock.datastream.connectors.number_seq",
    "penstock.datastream.connectors.file_system",
    "penstock.datastream.connectors.kafka",
    "penstock.datastream.connectors.dynamic_kafka",
    "penstock.datastream.connectors.hybrid_source",
    "penstock.datastream.connectors.postgres",
    "penstock.datastream.connectors.redis",
    "penstock.connectors.generated",
    "penstock.metrics",
    "penstock.query",
    "penstock.tables",
    "penstock.testing",
]
"""The modules that users import from, in order of preference."""

OTHERS = {
    "internals/architecture",
    "internals/dataflow",
    "internals/state",
    "migrate/compatibility",
    "reference/errors",
}
"""Pages on Penstock's own files, and on every name there is."""


@cache
def public() -> dict[str, str]:
    """Return the module to import each name from."""
    names: dict[str, str] = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            names.setdefault(name, module)
    return names


def names_in(code: str) -> tuple[set[str], set[str]]:
    """Return the names that a piece of code uses, and those that it imports or defines."""
    used, known = set(), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            known.add(node.name)
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
    return used, known


def unexplained(page: str) -> set[str]:
    used: set[str] = set()
    known: set[str] = set()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        of_block = names_in(block)
        used |= of_block[0]
        known |= of_block[1]
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    for line in re.findall(r"`(from penstock[.\w]* import [^`]*)`", prose):
        known |= names_in(line)[1]
        exec(line, {})
    used |= set(re.findall(r"`([A-Z]\w+)", prose))
    return {name for name in used - known if name in public()}


PAGES = sorted({str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - OTHERS)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_imports_of_its_names(page: str) -> None:
    missing = {name: public()[name] for name in unexplained((DOCS / f"{page}.md").read_text())}
    assert missing == {}, f"docs/{page}.md uses these names without showing where to import them from"


def test_a_name_without_an_import_is_reported() -> None:
    assert unexplained("```python\nTime.seconds(5)\n```") == {"Time"}
    assert unexplained("Use `Time.seconds(5)`.") == {"Time"}
    assert unexplained("Use `Time.seconds(5)`: `from penstock.common import Time`.") == set()
    assert unexplained("```python\nfrom penstock.common import Time\n\nTime.seconds(5)\n```") == set()
