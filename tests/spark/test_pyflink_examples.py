"""PyFlink's own examples, read from its wheel, with only the import root changed, print what they print on Flink."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scripts.pyflink_wheel import read

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("pyflink_wheel")]


def example(name: str) -> str:
    return read(f"pyflink/examples/datastream/{name}.py")


def run(tmp_path: Path, source: str, *arguments: str) -> Counter[str]:
    """The lines that an example prints, without the number of the subtask that printed them."""
    program = tmp_path / "example.py"
    program.write_text(re.sub(r"\bpyflink\b", "penstock", source))
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={**os.environ, "PENSTOCK_PROPERTIES": "spark.master: local[2]"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Counter(re.sub(r"^\d+> ", "", line) for line in done.stdout.splitlines())


def literal(source: str, name: str) -> Any:
    """The value of a literal that the example assigns to `name` or passes by that name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == name:
            return ast.literal_eval(node.value)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"the example has no literal {name}")


def test_basic_operations_prints_what_its_comments_say(tmp_path: Path) -> None:
    source = example("basic_operations")
    expected = re.findall(r"^ +# (\(.*\))$", source, re.MULTILINE)
    assert len(expected) == 9
    assert run(tmp_path, source) == Counter(expected)


def test_process_json_data_prints_the_records_of_one_country(tmp_path: Path) -> None:
    source = example("process_json_data")
    expected = []
    for number, text in literal(source, "collection"):
        data = json.loads(text)
        data["tel"] += 1
        if data["addr"]["country"] == "China":
            expected.append(str((number, data)))
    assert len(expected) == 2
    assert run(tmp_path, source) == Counter(expected)
