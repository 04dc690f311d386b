"""Flink's REST API as text, apart from the code: its endpoints and types, and a check of raw JSON against them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT = Path(__file__).parents[1] / "data/rest_contract.txt"
_ENDPOINT = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (\S+) → (\d+)( \(multipart\))?(?: \?(\S+))?")
_SCALARS = {"s": str, "i": int, "n": (int, float), "b": bool, "any": str, "RawJson": dict, "{}": dict}

NULLABLE = {"LatestCheckpoints", "LatestRescales"}
"""Types whose fields are null if the object does not exist."""
_RESULT = ("JobExecutionResultResponseBody", "job-execution-result")
_AGGREGATED = ("/jobs/metrics", "/taskmanagers/metrics", "/jobs/:jobid/vertices/:vertexid/subtasks/metrics")


@dataclass
class Described:
    """One endpoint. Types are text, as in the contract."""

    status: int
    query: tuple[str, ...]
    multipart: bool
    body: str | None = None
    answer: str = ""


def _read() -> tuple[dict[tuple[str, str], Described], dict[str, dict[str, str] | str]]:
    endpoints: dict[tuple[str, str], Described] = {}
    types: dict[str, dict[str, str] | str] = {}
    for line in TEXT.read_text().splitlines():
        if found := _ENDPOINT.fullmatch(line):
            method, path, status, multipart, query = found.groups()
            last = endpoints[method, path] = Described(
                int(status), tuple(query.split(",")) if query else (), bool(multipart)
            )
        elif line.startswith("    in "):
            last.body = line[7:].strip()
        elif line.startswith("    out "):
            last.answer = line[8:].strip()
        elif line and not line.startswith("#"):
            name, form = line.split(" = ")
            types[name] = _fields(form) if form.startswith("{") else form
    return endpoints, types


def _fields(form: str) -> dict[str, str]:
    fields, depth, part = {}, 0, ""
    for letter in form[1:-1] + ",":
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and not depth:
            name, _, type_ = part.strip().partition(": ")
            fields[name] = type_
            part = ""
        else:
            part += letter
    return fields


CONTRACT, TYPES = _read()


def check_answer(method: str, path: str, body: bytes, query: dict[str, str] | None = None) -> None:
    """Fail unless this is an answer of the endpoint: exact fields, types and enumerations. `path` has parameters."""
    given = query or {}
    form = CONTRACT[method, path].answer
    answer = json.loads(body)
    if form == "any":
        form = _form_of(path, given)
        if form == "[AggregatedMetric]" and "agg" in given:
            asked = {"id", *given["agg"].split(",")}
            for each in answer:
                assert set(each) == asked, f"{path}: {each}"
                each |= {name: 0 for name in TYPES["AggregatedMetric"] if name not in asked}
    _check(answer, form, f"{method} {path}")


def _form_of(path: str, query: dict[str, str]) -> str:
    if path == "/jobs/:jobid/config":
        return "JobConfig"
    if path.endswith("/watermarks"):
        return "[MetricValue]"
    if "get" not in query:
        return "[MetricId]"
    return "[AggregatedMetric]" if path in _AGGREGATED else "[MetricValue]"


def _check(value: Any, form: str, where: str) -> None:
    if form in _SCALARS:
        # True is an int in Python, but not in JSON.
        assert isinstance(value, _SCALARS[form]), f"{where}: {value!r} is not {form}"
        assert isinstance(value, bool) == (form == "b"), f"{where}: {value!r} is not {form}"
    elif form.startswith("["):
        assert isinstance(value, list), f"{where}: {value!r} is not {form}"
        for number, each in enumerate(value):
            _check(each, form[1:-1], f"{where}[{number}]")
    elif form.startswith("{*: "):
        assert isinstance(value, dict), f"{where}: {value!r} is not {form}"
        for key, each in value.items():
            _check(each, form[4:-1], f"{where}.{key}")
    elif form in TYPES and isinstance(fields := TYPES[form], dict):
        assert isinstance(value, dict), f"{where}: {value!r} is not {form}"
        assert set(value) == set(fields), f"{where}: {form} has the wrong fields {sorted(set(value) ^ set(fields))}"
        for name, each in fields.items():
            if (form, name) == _RESULT:
                assert isinstance(value[name], dict | None), f"{where}.{name}: {value[name]!r}"
            elif value[name] is not None or form not in NULLABLE:
                _check(value[name], each, f"{where}.{name}")
    else:
        choices = TYPES.get(form, form)
        assert isinstance(choices, str)
        assert value in choices.split("|"), f"{where}: {value!r} is not {form}"
