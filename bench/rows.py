"""A table that grows row by row, with limits for its values, and the processes that measure them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class Row:
    what: str
    measured: str
    bar: str
    holds: bool | None
    """None if the row has no limit."""


class Rows:
    """The measurements of one run. Each row is also logged to `console` when it is added."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._load = os.getloadavg()[0]
        self._rows: list[Row] = []

    def add(self, what: str, measured: str, bar: str = "", holds: bool | None = None) -> None:
        self._rows.append(Row(what, measured, bar, holds))
        self._console.log(f"{what}: {measured}")

    def show(self, check: bool) -> int:
        """Print the table and return the exit code: 1 if `check` is set and a limit is missed."""
        table = Table(title=self._title, caption=f"{os.cpu_count()} cores, load {self._load:.1f} before")
        for heading in ("what", "measured", "limit"):
            table.add_column(heading)
        for row in self._rows:
            mark = {True: "✓ ", False: "✗ ", None: ""}[row.holds]
            table.add_row(row.what, row.measured, mark + row.bar)
        (Console() if sys.stdout.isatty() else Console(width=150)).print(table)
        missed = [row for row in self._rows if row.holds is False]
        for row in missed if check else []:
            print(f"limit missed: {row.what}: {row.measured}, {row.bar}", file=sys.stderr)
        return 1 if check and missed else 0


def run_json(command: list[str], dies: bool = False) -> Any:
    """Run a process that measures, and return the last line of its output as JSON.

    With `dies`, the process is expected to kill itself at the end.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    lines = done.stdout.strip().splitlines()
    if dies != (done.returncode == -9) or (not dies and not lines):
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1]) if lines else None
