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


def said_by_the_program(source: str) -> Counter[str]:
    """The literal lines an example prints itself."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    return Counter(ast.literal_eval(call.args[0]) for call in prints)


def test_word_count_prints_each_word_once_with_its_count(tmp_path: Path) -> None:
    source = example("word_count")
    words = Counter(word for line in literal(source, "word_count_data") for word in line.split())
    expected = Counter(f"({word},{count})" for word, count in words.items())
    assert run(tmp_path, source) == expected + said_by_the_program(source)


def test_word_count_reads_a_file_and_writes_one(tmp_path: Path) -> None:
    source = example("word_count")
    given, written = tmp_path / "input.txt", tmp_path / "output"
    given.write_text("to be or\nnot to be\n")
    assert run(tmp_path, source, "--input", str(given), "--output", str(written)) == Counter()
    parts = [path for path in written.rglob("*") if path.is_file()]
    assert parts
    assert all(path.name.startswith("prefix") and path.name.endswith(".ext") for path in parts)
    lines = [line for path in parts for line in path.read_text().splitlines()]
    assert Counter(lines) == Counter(["(to,2)", "(be,2)", "(or,1)", "(not,1)"])
