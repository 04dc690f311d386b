"""The console: a job's log lines go to standard error, unless the application configures logging."""

import io
import logging
import subprocess
import sys
import textwrap

import pytest

from penstock.common.console import NOT_ON_CONSOLE, Console


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60)


SAYS = """
import logging
from penstock.common.console import NOT_ON_CONSOLE, console
log = logging.getLogger("penstock")
{before}
console({quiet})
log.info("An info.")
log.warning("A warning.")
log.info("For files.", extra=NOT_ON_CONSOLE)
{after}
console({quiet})
log.info("Another info.")
"""


def says(before: str = "", after: str = "", quiet: bool = False) -> tuple[str, list[str]]:
    done = run(SAYS.format(before=before, after=after, quiet=quiet))
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()


class TestLines:
    def test_log_lines_go_to_standard_error(self) -> None:
        assert says() == ("", ["An info.", "A warning.", "Another info."])

    def test_a_quiet_console_shows_only_warnings(self) -> None:
        assert says(quiet=True) == ("", ["A warning."])

    def test_application_logging_configuration_wins(self) -> None:
        _, lines = says(before="logging.basicConfig(format='mine %(message)s')")
        assert lines == ["mine A warning."]
        _, lines = says(before="logging.basicConfig(format='mine %(message)s', level='INFO')")
        assert lines == ["mine An info.", "mine A warning.", "mine For files.", "mine Another info."]

    def test_logging_configured_after_the_first_job_wins(self) -> None:
        _, lines = says(after="logging.basicConfig(format='mine %(message)s')")
        assert lines == ["An info.", "A warning."]

    def test_log_lines_are_printed_once_when_a_library_logs_to_the_root(self) -> None:
        done = run(
            "import logging; from penstock.common.console import console; console()\n"
            "logging.error('Theirs.'); logging.getLogger('penstock').warning('Ours.')"
        )
        assert done.stderr.splitlines() == ["ERROR:root:Theirs.", "Ours."]

    def test_a_log_level_set_by_the_application_wins(self) -> None:
        _, lines = says(before="log.setLevel(logging.WARNING)")
        assert lines == ["A warning."]

    def test_log_lines_go_to_the_handlers_of_the_application(self) -> None:
        out, lines = says(before="import sys; log.addHandler(logging.StreamHandler(sys.stdout)); log.setLevel('INFO')")
        assert out.splitlines() == ["An info.", "A warning.", "For files.", "Another info."]
        assert lines == []

    def test_a_null_handler_on_the_root_logger_does_not_hide_log_lines(self) -> None:
        _, lines = says(before="logging.getLogger().addHandler(logging.NullHandler())")
        assert lines == ["An info.", "A warning.", "Another info."]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Return the visible lines, after applying `\\r` and line erasure."""
        lines = [""]
        for part in self.getvalue().replace("\r\x1b[2K", "\0").splitlines(keepends=True):
            lines[-1] = (lines[-1] + part.rstrip("\n")).rpartition("\0")[2]
            if part.endswith("\n"):
                lines.append("")
        return lines


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard output and error the same terminal. Not a fixture: pytest replaces both after fixtures run."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.delattr("sys.ps1", raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    return terminal


def record(text: str, **fields: bool) -> logging.LogRecord:
    made = logging.LogRecord("penstock", logging.INFO, "", 0, text, None, None)
    made.__dict__.update(fields)
    return made


class TestTheStatusLine:
    def test_the_status_line_stays_below_logged_and_printed_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        console = Console()
        console.show_status("epoch 1")
        console.handle(record("A line."))
        console.handle(record("For files.", **NOT_ON_CONSOLE))
        print("printed", 1)
        console.show_status("epoch 2")
        assert terminal.screen() == ["A line.", "printed 1", "epoch 2"]
        console.show_status("")
        assert terminal.screen() == ["A line.", "printed 1", ""]

    def test_the_status_line_does_not_overwrite_an_unfinished_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        console = Console()
        console.show_status("epoch 1")
        print("half", end="")
        console.show_status("epoch 2")
        assert terminal.screen() == ["half"]
        print(" a line")
        assert terminal.screen() == ["half a line", "epoch 2"]

    def test_clearing_the_status_line_restores_standard_output(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        console = Console()
        console.show_status("epoch 1")
        assert sys.stdout is not terminal
        assert sys.stdout.isatty()
        console.show_status("")
        assert sys.stdout is terminal

    def test_the_status_line_leaves_a_redirected_standard_output_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        file = io.StringIO()
        monkeypatch.setattr("sys.stdout", file)
        console = Console()
        console.show_status("epoch 1")
        print("printed")
        console.show_status("")
        assert (sys.stdout, file.getvalue()) == (file, "printed\n")
        assert terminal.screen() == [""]

    def test_the_status_line_is_shorter_than_the_terminal_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        Console().show_status("x" * 100)
        assert terminal.screen() == ["x" * 39]

    def test_the_status_line_requires_a_terminal_without_a_prompt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        on_terminal(monkeypatch)
        assert Console().takes_status
        monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
        assert not Console().takes_status
        monkeypatch.delattr("sys.ps1")
        monkeypatch.setattr("sys.stderr", io.StringIO())
        assert not Console().takes_status
