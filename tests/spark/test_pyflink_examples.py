"""PyFlink's examples from its wheel, with only the import root changed, print the same output as on Flink."""

import ast
import json
import os
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.pyflink_wheel import read

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("pyflink_wheel")]


def example(name: str) -> str:
    return read(f"pyflink/examples/datastream/{name}.py")


Run = Callable[..., Counter[str]]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """One process for all examples, because each would start its own Spark otherwise."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("example_runner.py"))],
        env={**os.environ, "PENSTOCK_PROPERTIES": "spark.master: local[2]"},
        cwd=tmp_path_factory.mktemp("runner"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run(runner: subprocess.Popen[str], tmp_path: Path) -> Run:
    def run(source: str, *arguments: str) -> Counter[str]:
        """Return the lines that an example prints, without the numbers of the printing subtasks."""
        program = tmp_path / "example.py"
        program.write_text(re.sub(r"\bpyflink\b", "penstock", source))
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(json.dumps({"program": str(program), "arguments": arguments}) + "\n")
        runner.stdin.flush()
        printed = json.loads(runner.stdout.readline())
        assert printed["err"] == ""
        return Counter(re.sub(r"^\d+> ", "", line) for line in printed["out"].splitlines())

    return run


def literal(source: str, name: str) -> Any:
    """Return the literal that the example assigns to `name` or passes by that name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == name:
            return ast.literal_eval(node.value)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"the example has no literal {name}")


def test_basic_operations_prints_the_output_in_its_comments(run: Run) -> None:
    source = example("basic_operations")
    expected = re.findall(r"^ +# (\(.*\))$", source, re.MULTILINE)
    assert len(expected) == 9
    assert run(source) == Counter(expected)


def test_process_json_data_prints_the_records_of_one_country(run: Run) -> None:
    source = example("process_json_data")
    expected = []
    for number, text in literal(source, "collection"):
        data = json.loads(text)
        data["tel"] += 1
        if data["addr"]["country"] == "China":
            expected.append(str((number, data)))
    assert len(expected) == 2
    assert run(source) == Counter(expected)


def said_by_the_program(source: str) -> Counter[str]:
    """Return the literal lines that the example itself prints."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    return Counter(ast.literal_eval(call.args[0]) for call in prints)


def test_word_count_prints_each_word_once_with_its_count(run: Run) -> None:
    source = example("word_count")
    words = Counter(word for line in literal(source, "word_count_data") for word in line.split())
    expected = Counter(f"({word},{count})" for word, count in words.items())
    assert run(source) == expected + said_by_the_program(source)


def test_word_count_reads_a_file_and_writes_one(run: Run, tmp_path: Path) -> None:
    source = example("word_count")
    given, written = tmp_path / "input.txt", tmp_path / "output"
    given.write_text("to be or\nnot to be\n")
    assert run(source, "--input", str(given), "--output", str(written)) == Counter()
    parts = [path for path in written.rglob("*") if path.is_file()]
    assert parts
    assert all(path.name.startswith("prefix") and path.name.endswith(".ext") for path in parts)
    lines = [line for path in parts for line in path.read_text().splitlines()]
    assert Counter(lines) == Counter(["(to,2)", "(be,2)", "(or,1)", "(not,1)"])


def collection(source: str) -> Any:
    """Return the records that an example starts from."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_collection":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            return ast.literal_eval(node.args[0] if node.args else given["collection"])
    raise AssertionError("the example has no from_collection")


def tumbling(times: list[int]) -> Counter[tuple[int, int]]:
    return Counter((time // 5 * 5, time // 5 * 5 + 5) for time in times)


def sliding(times: list[int]) -> Counter[tuple[int, int]]:
    starts = range(-10, max(times) + 2, 2)
    return Counter((start, start + 5) for time in times for start in starts if start <= time < start + 5)


def sessions(gap: Callable[[int], int]) -> Callable[[list[int]], Counter[tuple[int, int]]]:
    """Return session windows. Times in the examples ascend, so sessions never merge."""

    def windows(times: list[int]) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        start, end, count = times[0], times[0], 0
        for time in times:
            if time > end:
                counts[start, end] = count
                start, count = time, 0
            end, count = max(end, time + gap(time)), count + 1
        counts[start, end] = count
        return counts

    return windows


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("tumbling_time_window", tumbling),
        ("sliding_time_window", sliding),
        ("session_with_gap_window", sessions(lambda time: 5)),
        ("session_with_dynamic_gap_window", sessions(lambda time: time)),
    ],
)
def test_time_windows_print_their_record_counts(
    run: Run, name: str, windows: Callable[[list[int]], Counter[tuple[int, int]]]
) -> None:
    source = example(f"windowing/{name}")
    counts = windows([time for _, time in collection(source)])
    expected = Counter(f"(hi,{start},{end},{count})" for (start, end), count in counts.items())
    assert run(source) == expected + said_by_the_program(source)


def test_count_windows_print_their_sums(run: Run) -> None:
    source = example("windowing/tumbling_count_window")
    numbers: dict[str, list[int]] = {}
    for number, word in collection(source):
        numbers.setdefault(word, []).append(number)
    expected: Counter[str] = Counter()
    for word, values in numbers.items():
        expected.update(f"({word},{a + b})" for a, b in zip(values[::2], values[1::2]))
    assert run(source) == expected + said_by_the_program(source)


def test_windows_write_a_file(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "output"
    assert run(example("windowing/tumbling_time_window"), "--output", str(written)) == Counter()
    lines = [line for path in written.rglob("*.ext") for line in path.read_text().splitlines()]
    assert Counter(lines) == Counter(["(hi,0,5,4)", "(hi,5,10,3)", "(hi,15,20,1)"])


def test_state_access_prints_running_sums(run: Run) -> None:
    """State expires a second after its last access; the records arrive faster."""
    source = example("state_access")
    sums: dict[str, float] = {}
    expected: Counter[str] = Counter()
    for name, number in collection(source):
        sums[name] = sums.get(name, 0) + as_float(number)
        expected[str((name, sums[name]))] += 1
        sums[name] = as_float(sums[name])
    assert run(source) == expected


def test_event_time_timer_prints_a_sum_for_every_timer(run: Run) -> None:
    source = example("event_time_timer")
    timers = [(name, time + 2000) for time, name, _ in collection(source)]
    printed = [ast.literal_eval(line) for line in run(source).elements()]
    assert Counter(name for name, _ in printed) == Counter(name for name, _ in timers)
    # How many records a timer sees depends on how the collection is read; the last timers see all.
    totals = {"Alice": 163.3, "Bob": 102.5}
    assert {name: max(value for of, value in printed if of == name) for name in totals} == pytest.approx(totals)


def as_float(number: float) -> float:
    """Return the number in the example's 32-bit type."""
    return struct.unpack("f", struct.pack("f", number))[0]
