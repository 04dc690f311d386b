"""Options of `penstock run` that choose the program and ship its dependencies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from penstock.cli.shown_errors import ShownErrors
from penstock.common.options.program import PYTHON_ARCHIVES, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.datastream.dependencies import import_configured

PROGRAMS = (".zip", ".whl")

Program = Annotated[Path | None, typer.Argument(help="A Python file, or a folder or zip file with a file __main__.py.")]
Arguments = Annotated[list[str] | None, typer.Argument(help="Passed to the program.")]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "-pyfs",
        "--py-files",
        "--pyFiles",
        metavar="FILES",
        help="Modules and packages for the program and its workers: .py, .zip, .egg and .whl files, and folders, "
        "separated by commas.",
    ),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        "-pyarch",
        "--archives",
        "--pyArchives",
        metavar="FILES",
        help="Archives to unpack for the workers, separated by commas; data.zip#name names the folder.",
    ),
]
RequirementsFile = Annotated[
    str | None,
    typer.Option(
        "-pyreq",
        "--requirements",
        "--pyRequirements",
        metavar="FILE[#FOLDER]",
        help="Packages to install for the program and its workers, from an index or from a folder of wheels.",
    ),
]
PythonFile = Annotated[
    Path | None,
    typer.Option("-py", "--python", metavar="FILE", help="The program, as flink run accepts it."),
]
PythonModule = Annotated[
    str | None,
    typer.Option("-pym", "--pyModule", metavar="MODULE", help="Run this module, of the current folder or --py-files."),
]


class Chosen(NamedTuple):
    """The program that a command runs."""

    program: Path
    """A file, or the folder or archive that contains the module."""
    module: str
    arguments: list[str]


def chosen_program(
    program: Path | None, arguments: list[str] | None, python_file: Path | None, module: str | None
) -> Chosen:
    """Return the program to run, which is an argument of the command or of one of its options."""
    given = [str(program), *(arguments or [])] if program is not None else []
    if python_file is not None and module is not None:
        raise typer.BadParameter("Pass a file or a module, not both.", param_hint="-pym")
    if module is not None:
        inside = program is not None and program.suffix in PROGRAMS and program.is_file()
        return Chosen(program, module, given[1:]) if inside and program else Chosen(Path.cwd(), module, given)
    if python_file is not None:
        return Chosen(_existing(python_file), "", given)
    if program is None:
        raise typer.BadParameter("Name a Python file, or a module with -pym MODULE.", param_hint="PROGRAM")
    return Chosen(_existing(program), "", given[1:])


def dependency_settings(
    py_files: list[str] | None, archives: list[str] | None, requirements: str | None
) -> dict[str, str]:
    """Return the settings for these options, with absolute paths: the program can change the current directory."""
    settings = {}
    if py_files:
        settings[PYTHON_FILES.key] = ",".join(map(_absolute, _names(py_files)))
    if archives:
        parted = (name.partition("#") for name in _names(archives))
        settings[PYTHON_ARCHIVES.key] = ",".join(f"{_absolute(path)}{mark}{folder}" for path, mark, folder in parted)
    if requirements:
        settings[PYTHON_REQUIREMENTS.key] = "#".join(map(_absolute, requirements.split("#", 1)))
    return settings


def import_dependencies(settings: Mapping[str, str]) -> None:
    """Let the program import the dependencies that the settings name. Installs its requirements."""
    with ShownErrors():
        import_configured({}, settings)


def _existing(program: Path) -> Path:
    if not program.exists():
        raise typer.BadParameter(f"File '{program}' does not exist.", param_hint="PROGRAM")
    if program.is_dir() and not (program / "__main__.py").is_file():
        raise typer.BadParameter(f"Folder '{program}' has no file __main__.py.", param_hint="PROGRAM")
    if not os.access(program, os.R_OK):
        raise typer.BadParameter(f"File '{program}' is not readable.", param_hint="PROGRAM")
    return program


def _names(given: list[str]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _absolute(path: str) -> str:
    return path if path.startswith("file:") or "://" in path else os.path.abspath(path)
