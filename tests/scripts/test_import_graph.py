"""The picture of the import graph: what it shows, and that the committed one is current."""

from collections import Counter
from pathlib import Path

import pytest

from scripts import import_graph
from scripts.import_graph import Size, contract, draw, drawn, implied, imports, size

ROWS = [["top", "helper"], ["middle"], ["bottom"]]
EDGES = Counter({("top", "middle"): 3, ("middle", "bottom"): 1, ("top", "bottom"): 2, ("helper", "bottom"): 1})
SIZES = {package: Size(2, 1234) for row in ROWS for package in row}

CURRENT = "docs/internals/import-graph.svg shows another {}. Run `make graph`, look at the picture and commit it."


def test_the_committed_picture_shows_the_layers_and_imports_of_the_code() -> None:
    """Widths of arrows and counts of lines can be older: they change with almost every commit."""
    rows, type_checking = contract()
    layers, arrows = drawn(import_graph.TARGET.read_text())
    assert layers == rows, CURRENT.format("list of layers than the contract in pyproject.toml")
    assert arrows == set(imports(type_checking)), CURRENT.format("set of imports than the code")


def test_a_picture_gives_back_what_was_drawn() -> None:
    svg = draw(ROWS, EDGES, SIZES)
    assert drawn(svg) == (ROWS, set(EDGES))
    for package in SIZES:
        assert f">{package}</text>" in svg
    assert "2 files, 1,234 lines" in svg
    assert "top imports middle: 3 modules" in svg
    assert "#e00000" not in svg


def test_an_import_from_a_lower_layer_is_drawn_in_red() -> None:
    assert "#e00000" in draw(ROWS, EDGES + Counter({("bottom", "top"): 1}), SIZES)


def test_an_import_with_a_longer_way_round_is_implied() -> None:
    assert implied(EDGES) == {("top", "bottom")}


def test_layers_are_read_from_the_contract(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.importlinter]\nexclude_type_checking_imports = true\n"
        '[[tool.importlinter.contracts]]\ntype = "forbidden"\n'
        '[[tool.importlinter.contracts]]\ntype = "layers"\nlayers = ["a | b", "c : (d)", "e"]\n'
    )
    assert contract(tmp_path) == ([["a", "b"], ["c", "d"], ["e"]], False)


@pytest.mark.parametrize("package", ["errors", "graph"])
def test_sizes_count_a_module_and_a_package(package: str) -> None:
    counted = size(package)
    assert (counted.files == 1) is (package == "errors")
    assert counted.lines > 10
