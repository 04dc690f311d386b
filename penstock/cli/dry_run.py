"""`penstock run --dry-run`: compare a savepoint with a program without starting a job or writing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import typer

from penstock.cli.first_job import first_job
from penstock.cli.shipping import Chosen
from penstock.common.configuration import Configuration
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.comparison import (
    INCOMPATIBLE,
    RESTORED,
    Comparison,
    OperatorVerdict,
    SourceVerdict,
    compare,
    summary,
)
from penstock.savepoint.settings import restore_settings


def dry_run(chosen: Chosen, as_json: bool, settings: Mapping[str, str]) -> int:
    """Compare the first job of a program with the configured savepoint.

    Return the exit code that a run would have, as far as the savepoint determines it.
    """
    name, comparison = first_job(chosen, _compared, settings)
    return _say(name, comparison, as_json)


def _compared(
    name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration
) -> tuple[str, Comparison]:
    from penstock.spark.sources import sources_in_log

    settings = restore_settings(configuration)
    assert settings is not None
    return name, compare(physical, sources_in_log(logical, physical), settings)


def _say(name: str, comparison: Comparison, as_json: bool) -> int:
    if as_json:
        typer.echo(json.dumps(summary(name, comparison), indent=2))
    else:
        typer.echo("\n".join(_lines(name, comparison)))
        if not comparison.would_start:
            typer.echo(
                f"{comparison.problem}\nFix: {comparison.fix}" if comparison.fix else comparison.problem, err=True
            )
    return 0 if comparison.would_start else 1


def _lines(name: str, comparison: Comparison) -> Iterator[str]:
    yield f"Job '{name}' from the savepoint of job '{comparison.job}' in {comparison.savepoint}"
    for operator in comparison.operators:
        yield from _operator(operator)
    for source in comparison.sources:
        yield _source(source)
    yield "It would start." if comparison.would_start else "It would not start."


def _operator(operator: OperatorVerdict) -> Iterator[str]:
    yield f"operator '{operator.uid}' ({operator.name}): {operator.verdict}"
    if operator.reason:
        yield f"  {operator.reason}"
    for state in operator.states:
        kind = state.declared or state.stored or ""
        if state.stored and state.declared and state.stored != state.declared:
            kind = f"{state.stored} -> {state.declared}"
        yield f"  {state.verdict:14}{state.name}" + (f": {kind}" if kind else "")
        if state.verdict == INCOMPATIBLE:
            yield f"    {state.reason}"


def _source(source: SourceVerdict) -> str:
    said = f"source '{source.uid}' ({source.name}): {source.verdict}"
    if source.verdict == RESTORED:
        said += f", resumes after {source.records:,} records"
    return said + "".join(f"\n  position {position}" for position in source.positions if position)
