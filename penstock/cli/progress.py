"""The progress display of the demo: a live panel on a terminal, otherwise a line per second."""

from __future__ import annotations

import time

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_SECONDS_BETWEEN_LINES = 1.0
_SECONDS_BETWEEN_EQUAL_LINES = 10.0


class Progress:
    """Shows the progress in a `with` block. Set fields at any time, then call `show`; call `note` for events."""

    def __init__(self, console: Console, total: int) -> None:
        self.total = total
        self.done = 0
        self.epoch = 0
        self.rate = 0.0
        self.state_bytes = 0
        self.crashes = 0
        self.doing = ""
        self._console = console
        self._started = time.monotonic()
        self._last_line = ""
        self._last_line_at = 0.0
        terminal = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, get_renderable=self._panel, transient=True) if terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str, style: str = "") -> None:
        """Print a permanent line with the seconds since the start."""
        line = f"{time.monotonic() - self._started:6.1f} s  {text}"
        self._console.print(Text(line, style), soft_wrap=True)

    def show(self) -> None:
        """Show the changed fields. On a terminal the panel refreshes by itself."""
        if self._live is not None:
            return
        line = f"{self.done:>9,} of {self.total:,}  " + "  ".join(f"{name} {value}" for name, value in self._figures())
        pause = _SECONDS_BETWEEN_EQUAL_LINES if line == self._last_line else _SECONDS_BETWEEN_LINES
        if time.monotonic() - self._last_line_at >= pause:
            self._last_line, self._last_line_at = line, time.monotonic()
            self.note(line)

    def _figures(self) -> list[tuple[str, str]]:
        rate = f"{self.rate:,.0f}/s" if self.rate else "–"
        return [
            ("rate", rate),
            ("epoch", str(self.epoch)),
            ("state", size(self.state_bytes)),
            ("crashes", str(self.crashes)),
        ]

    def _panel(self) -> RenderableType:
        seconds = time.monotonic() - self._started
        figures = Table.grid(padding=(0, 3))
        cells = [Text.assemble((name, "dim"), " ", (value, "bold")) for name, value in self._figures()]
        figures.add_row(Text(f"{self.done:,} of {self.total:,}", "bold"), *cells)
        panel = Table.grid()
        panel.add_row(Text(f"{seconds:6.1f} s  {self.doing}", "cyan"))
        panel.add_row(ProgressBar(total=self.total, completed=self.done, width=min(80, self._console.width)))
        panel.add_row(figures)
        return panel


def size(count: int) -> str:
    """Return a human-readable size."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"
