"""Compute the victim's expected output and state from its input in plain Python, and compare."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.program import LETTERS, LIST_LENGTH, THE_END, WINDOW_MS, line, note, record

_SHOWN = 5


@dataclass
class Expected:
    lines: Counter[str] = field(default_factory=Counter)
    """Without tags, which are random."""
    states: dict[tuple[str, str], dict[int, Any]] = field(default_factory=dict)
    """The value of every key, by operator and state."""


def expected(numbers: Iterable[int], *, timers_to: int = THE_END, windows_to: int = THE_END) -> Expected:
    """Return the expected results for an input of these records, in this order.

    A job that did not reach the end of its input has watermarks below `THE_END`: of the stage with timers, and of the
    windows.
    """
    by_key: dict[int, list[Any]] = defaultdict(list)
    for number in numbers:
        each = record(number)
        by_key[each.key].append(each)
    result = Expected()
    letters: dict[int, list[int]] = defaultdict(list)
    names = ("n", "ids", "note", "sums")
    first: dict[str, dict[int, Any]] = {name: {} for name in names}
    for key, records in by_key.items():
        windows: dict[int, list[int]] = defaultdict(list)
        for n, each in enumerate(records, 1):
            result.lines[line("record", key, each.id, n, "")] += 1
            if n % LIST_LENGTH == 0:
                result.lines[line("list", key, n, [other.id for other in records[n - LIST_LENGTH : n]], "")] += 1
            windows[each.timestamp - each.timestamp % WINDOW_MS].append(each.id)
            letters[key % LETTERS].append(each.id)
        for start, ids in windows.items():
            if start + WINDOW_MS <= timers_to:
                result.lines[line("timer", key, start + WINDOW_MS, sum(ids), "")] += 1
            else:
                first["sums"].setdefault(key, {})[start + WINDOW_MS] = sum(ids)
            if start + WINDOW_MS - 1 <= windows_to:
                result.lines[line("window", key, start, [len(ids), sum(ids)], "")] += 1
        n = len(records)
        rest = [each.id for each in records[n - n % LIST_LENGTH :]]
        if timers_to >= THE_END:
            result.lines[line("first", key, n, [*rest, -1], "")] += 1
        first["n"][key] = n
        first["note"][key] = note(key, n)
        if rest:
            first["ids"][key] = rest
    for letter, ids in letters.items():
        if timers_to >= THE_END:
            result.lines[line("second", letter, len(ids), sum(ids), "")] += 1
    result.states = {("first", name): held for name, held in first.items()}
    result.states["second", "n"] = {letter: len(ids) for letter, ids in letters.items()}
    result.states["second", "total"] = {letter: sum(ids) for letter, ids in letters.items()}
    return result


@dataclass
class Output:
    """Visible output of one run of the job; part file names include the run."""

    lines: Counter[str] = field(default_factory=Counter)
    tags: dict[int, list[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)


def read_output(out: Path) -> dict[str, Output]:
    """Return the visible output by run of the job."""
    runs: dict[str, Output] = {}
    for path in sorted(out.glob("part-*")):
        output = runs.setdefault(path.name.split("-")[1], Output())
        for text in path.read_text().splitlines():
            try:
                what, key, second, third, tag = json.loads(text)
            except ValueError:
                output.bad.append(f"{path.name}: {text[:80]!r}")
                continue
            output.lines[line(what, key, second, third, "")] += 1
            if what == "record":
                output.tags.setdefault(second, []).append(tag)
    return runs


def check_output(runs: dict[str, Output], wanted: Expected, last: str | None = None) -> list[str]:
    """Check that the last run's output is complete and exact; abandoned runs (Memory) can be incomplete only."""
    wrong = []
    if not runs:
        return ["no output is visible"]
    if last is None:
        if len(runs) > 1:
            return [f"the job was to be resumed, but {len(runs)} runs have written: {sorted(runs)}"]
        last = next(iter(runs))
    for run, output in runs.items():
        if run == last:
            lost = wanted.lines - output.lines
            wrong += [f"lost: {text}" for text in _some(lost)]
        extra = output.lines - wanted.lines
        wrong += [
            f"{'duplicate' if text in wanted.lines else 'unexpected'}: {text} (run {run})" for text in _some(extra)
        ]
        wrong += [f"not a line of this job: {text}" for text in output.bad[:_SHOWN]]
    return wrong


def together(runs: dict[str, Output]) -> Output:
    """Combine the output of all runs of a job that was stopped and resumed."""
    result = Output()
    for output in runs.values():
        result.lines.update(output.lines)
        result.bad += output.bad
        for number, tags in output.tags.items():
            result.tags.setdefault(number, []).extend(tags)
    return result


def check_states(states: dict[tuple[str, str], dict[int, Any]], wanted: Expected, output: Output) -> list[str]:
    """Check that the committed state of both stages matches the oracle, and its tags match the output."""
    wrong = []
    for (operator, name), held in wanted.states.items():
        found = states.get((operator, name), {})
        for key in sorted(held.keys() | found.keys()):
            if held.get(key) != found.get(key):
                wrong.append(
                    f"state '{name}' of '{operator}', key {key}: {_short(found.get(key))} instead of "
                    f"{_short(held.get(key))}"
                )
    given = {number: tags[0] for number, tags in output.tags.items() if len(tags) == 1}
    for operator in ("first", "second"):
        kept = {number: tag for tags in states.get((operator, "tags"), {}).values() for number, tag in tags.items()}
        for number in sorted(given.keys() | kept.keys()):
            if given.get(number) != kept.get(number):
                wrong.append(
                    f"record {number} has tag {given.get(number)} in the output and {kept.get(number)} in the state "
                    f"of '{operator}': attempts were mixed"
                )
    return wrong[: 2 * _SHOWN]


def _some(counted: Counter[str]) -> Iterable[str]:
    texts = sorted(counted.elements())
    more = len(texts) - _SHOWN
    return [*texts[:_SHOWN], f"… and {more} more"] if more > 0 else texts


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
