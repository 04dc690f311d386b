"""`penstock check`: list what a program uses that Penstock lacks or treats differently, without running it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.api_names import Status
from penstock.cli.program_check import Finding, check_program, imports_pyflink

_FATAL = (Status.ABSENT, Status.REFUSED)
"""A program with such a finding does not run."""
_COUNTED = {
    Status.ABSENT: "absent",
    Status.REFUSED: "refused",
    Status.DIFFERS: "different",
    Status.NOTED: "noted",
    Status.ACCEPTED: "accepted without effect",
}


class Checked(NamedTuple):
    """The findings of one file."""

    file: Path
    findings: list[Finding]
    imports_pyflink: bool


def check(
    programs: Annotated[list[Path], typer.Argument(metavar="PROGRAM...", help="Python files, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """List every name and setting of a PyFlink program that is absent, refused or different here.

    The program is read, not run: neither Java nor PyFlink is needed. The exit code is 1 if a name is absent or a
    setting is refused, otherwise 0.
    """
    checked = [_checked(file) for file in _files(programs)]
    if as_json:
        typer.echo(json.dumps(_as_json(checked), indent=2))
    else:
        typer.echo("\n".join(_lines(checked)))
    if any(finding.status in _FATAL for each in checked for finding in each.findings):
        raise typer.Exit(1)


def _files(programs: Iterable[Path]) -> Iterator[Path]:
    for program in programs:
        if program.is_dir():
            yield from sorted(program.rglob("*.py"))
        elif program.is_file():
            yield program
        else:
            raise typer.BadParameter(f"'{program}' does not exist.", param_hint="PROGRAM")


def _checked(file: Path) -> Checked:
    try:
        source = file.read_text()
        return Checked(file, check_program(source, str(file)), imports_pyflink(source))
    except (SyntaxError, UnicodeDecodeError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise typer.BadParameter(f"'{file}'{where} is not Python: {error}", param_hint="PROGRAM") from None


def _lines(checked: list[Checked]) -> Iterator[str]:
    counts: Counter[Status] = Counter()
    for each in checked:
        for finding in each.findings:
            counts[finding.status] += 1
            first, *others = sorted(finding.lines)
            yield f"{each.file}:{first}: {finding.status}: {finding.name}"
            yield f"    {finding.text}" + (f" (Also {_places(others)}.)" if others else "")
    if any(each.imports_pyflink for each in checked):
        files = " ".join(str(each.file) for each in checked if each.imports_pyflink)
        yield rf"To use Penstock, change the imports: sed -i 's/\bpyflink\b/penstock/g' {files}"
    said = ", ".join(f"{counts[status]} {word}" for status, word in _COUNTED.items() if counts[status])
    yield f"{said[:1].upper()}{said[1:]}." if said else "No differences found."


def _places(lines: list[int]) -> str:
    return f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines))}"


def _as_json(checked: list[Checked]) -> dict[str, Any]:
    counts = Counter(finding.status for each in checked for finding in each.findings)
    return {
        "counts": {status.value: counts[status] for status in Status},
        "findings": [
            {
                "file": str(each.file),
                "lines": sorted(finding.lines),
                "name": finding.name,
                "status": finding.status.value,
                "text": finding.text,
            }
            for each in checked
            for finding in each.findings
        ],
    }
