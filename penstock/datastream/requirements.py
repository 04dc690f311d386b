"""Installs the packages of a requirements file for a job."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from penstock.common.masking import masked_text
from penstock.errors import PenstockError

_SHOWN_LINES = 4
"""Of the output of pip. The short form of an error has five lines."""
_PROVIDED = re.compile(r"(pyspark|penstock)\b(?![-.])", re.IGNORECASE)


class RequirementsNotInstalled(PenstockError):
    """pip could not install the packages of a requirements file.

    Operator action: correct the requirements, or provide wheels for this version of Python.
    """

    retryable = False


@cache
def installed_requirements(file: str, wheels: str) -> Path:
    """Install the packages of a requirements file and return their folder. A process installs each file once.

    Args:
        file: The path of the requirements file.
        wheels: A folder of wheels to install from; empty: pip's index.
    """
    from penstock.common.scratch import scratch_directory

    if find_spec("pip") is None:
        raise RequirementsNotInstalled(
            f"Cannot install {file}: {sys.executable} has no pip.",
            fix=f"Install it with {sys.executable} -m ensurepip, or install the packages on all hosts.",
        )
    for line in Path(file).read_text(errors="replace").splitlines():
        if match := _PROVIDED.match(line.strip()):
            raise RequirementsNotInstalled(
                f"{file} names {match[1]}, which the driver already has and executors must have before a job starts.",
                fix="Remove the line.",
            )
    target = scratch_directory() / "packages"
    command = [sys.executable, "-m", "pip", "install", "--target", str(target), "--requirement", file]
    command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-compile", "--quiet"]
    if wheels:
        command += ["--no-index", "--find-links", wheels]
    # Relative paths in a requirements file are relative to the current directory.
    done = subprocess.run(
        command, cwd=Path(file).parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if done.returncode != 0:
        lines = [line for line in masked_text(done.stderr or done.stdout).splitlines() if line.strip()]
        raise RequirementsNotInstalled(
            f"pip could not install {file}:\n" + "\n".join(lines[-_SHOWN_LINES:]),
            fix=_fix(wheels),
        )
    target.mkdir(exist_ok=True)
    return target


def _fix(wheels: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if wheels:
        return f"Add the missing wheels for Python {version} to {wheels}."
    return (
        f"Correct the file. Each package needs a wheel for Python {version}; packages without one can be built with "
        f"pip wheel and passed in a folder: requirements.txt#folder."
    )
