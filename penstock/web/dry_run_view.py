"""The comparison of a program with a savepoint, as the page shows it."""

from __future__ import annotations

import msgspec

from penstock.savepoint.comparison import INCOMPATIBLE, RESTORED, OperatorVerdict, SourceVerdict, StateVerdict
from penstock.web.markup import Child, Markup, join, table, tag

_CHIPS = {RESTORED: "good", INCOMPATIBLE: "bad"}


class _Found(msgspec.Struct, kw_only=True):
    """What `penstock run --dry-run --json` prints."""

    program: str
    would_start: bool
    operators: list[OperatorVerdict] = []
    sources: list[SourceVerdict] = []
    problem: str = ""
    fix: str = ""


def dry_run_view(answer: str) -> Markup:
    """Return the result of a dry run: whether the job would start, and what happens to each state and position."""
    found = msgspec.json.decode(answer, type=_Found)
    verdict: Child
    if found.would_start:
        verdict = tag("p", tag("span", "would start", class_="chip good"), " The job would resume from the savepoint.")
    else:
        fix = join(" ", tag("b", "Next: "), found.fix) if found.fix else None
        verdict = tag("p", tag("b", "The job would not start. "), found.problem, fix, class_="reason", role="alert")
    rows = [row for each in found.operators for row in _operator(each)]
    rows += [_source(each) for each in found.sources]
    return join(
        tag("h2", "Dry run of ", tag("code", found.program)),
        verdict,
        table(["Operator", "State", "Result", "Details"], rows, label="Dry run") if rows else None,
    )


def _operator(operator: OperatorVerdict) -> list[list[Child]]:
    name = join(operator.name, " ", tag("span", f"uid {operator.uid}", class_="quiet"))
    if not operator.states:
        return [[name, None, _chip(operator.verdict), operator.reason]]
    return [[name, tag("code", state.name), _chip(state.verdict), _details(state)] for state in operator.states]


def _details(state: StateVerdict) -> str:
    kind = state.declared or state.stored or ""
    if state.stored and state.declared and state.stored != state.declared:
        kind = f"{state.stored} becomes {state.declared}"
    return f"{kind}. {state.reason}" if state.reason else kind


def _source(source: SourceVerdict) -> list[Child]:
    name = join(source.name, " ", tag("span", f"source, uid {source.uid}", class_="quiet"))
    said = f"resumes after {source.records:,} records" if source.verdict == RESTORED else ""
    return [name, None, _chip(source.verdict), "; ".join(filter(None, [said, *source.positions]))]


def _chip(verdict: str) -> Markup:
    return tag("span", verdict, class_=f"chip {_CHIPS.get(verdict, 'wait')}")
