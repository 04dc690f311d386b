"""`penstock plan`: show a program's job as text, JSON or a picture, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.first_job import first_job
from penstock.cli.overrides import Setting, overrides_of
from penstock.cli.shipping import Arguments, Program, PyFiles, PythonModule, chosen_program, dependency_settings
from penstock.common.configuration import Configuration
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.graph.picture import picture
from penstock.graph.plan_json import plan_of


def plan(
    program: Program = None,
    arguments: Arguments = None,
    setting: Setting = None,
    py_files: PyFiles = None,
    module: PythonModule = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the plan as SVG in this file.")
    ] = None,
) -> None:
    """Show the plan of a program's first job without running it."""
    settings = overrides_of(setting) | dependency_settings(py_files, None, None)
    name, found = first_job(chosen_program(program, arguments, None, module), _plan, settings)
    if svg is not None:
        svg.write_text(picture(found))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif svg is None:
        typer.echo(in_words(name, found))


def _plan(
    name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration
) -> tuple[str, dict[str, Any]]:
    return name, plan_of(logical, physical)


def in_words(name: str, plan: dict[str, Any]) -> str:
    """Return a line per operator, ordered by level and chain, with the inputs of each."""
    names = {node["id"]: node["contents"] for node in plan["nodes"]}
    lines = [f"Job '{name}'"]
    chain = None
    for node in sorted(plan["nodes"], key=lambda node: (node["level"], node["chain"], node["id"])):
        if node["chain"] != chain:
            chain = node["chain"]
            how_many = "one task per Spark partition" if node["parallelism"] is None else f"{node['parallelism']} tasks"
            lines.append(f"  stage {node['level']}, chain {chain}: {how_many}")
        inputs = ", ".join(
            f"{before['ship_strategy'].lower()} from {names[before['id']]}"
            + (f" ({before['side_output']})" if "side_output" in before else "")
            for before in node.get("predecessors", [])
            if before["exchange"]
        )
        marks = [mark for mark, holds in (("keyed", node.get("keyed")), (inputs, inputs)) if holds]
        lines.append(f"    {node['type']}  [uid {node['uid']}]" + (f"  {'; '.join(marks)}" if marks else ""))
    return "\n".join(lines)
