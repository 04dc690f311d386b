"""The console: the lines of jobs reach standard error, unless the application has logging of its own."""

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
    def test_go_to_standard_error(self) -> None:
        assert says() == ("", ["An info.", "A warning.", "Another info."])

    def test_are_warnings_only_where_quiet_is_asked_for(self) -> None:
        assert says(quiet=True) == ("", ["A warning."])

    def test_follow_the_logging_of_the_application(self) -> None:
        _, lines = says(before="logging.basicConfig(format='mine %(message)s')")
        assert lines == ["mine A warning."]
        _, lines = says(before="logging.basicConfig(format='mine %(message)s', level='INFO')")
        assert lines == ["mine An info.", "mine A warning.", "mine For files.", "mine Another info."]

    def test_follow_logging_that_is_set_up_after_the_first_job(self) -> None:
        _, lines = says(after="logging.basicConfig(format='mine %(message)s')")
        assert lines == ["An info.", "A warning."]

    def test_are_printed_once_where_a_library_logs_to_the_root(self) -> None:
        done = run(
            "import logging; from penstock.common.console import console; console()\n"
            "logging.error('Theirs.'); logging.getLogger('penstock').warning('Ours.')"
        )
        assert done.stderr.splitlines() == ["ERROR:root:Theirs.", "Ours."]

    def test_follow_a_level_that_the_application_chose(self) -> None:
        _, lines = says(before="log.setLevel(logging.WARNING)")
        assert lines == ["A warning."]

    def test_go_where_the_handlers_of_the_application_are(self) -> None:
        out, lines = says(before="import sys; log.addHandler(logging.StreamHandler(sys.stdout)); log.setLevel('INFO')")
        assert out.splitlines() == ["An info.", "A warning.", "For files.", "Another info."]
        assert lines == []

    def test_are_shown_where_a_library_put_a_null_handler(self) -> None:
        _, lines = says(before="logging.getLogger().addHandler(logging.NullHandler())")
        assert lines == ["An info.", "A warning.", "Another info."]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """What is seen in the end: `\\r` and the erasing of a line done."""
        lines = [""]
        for part in self.getvalue().replace("\r\x1b[2K", "\0").splitlines(keepends=True):
            lines[-1] = (lines[-1] + part.rstrip("\n")).rpartition("\0")[2]
            if part.endswith("\n"):
                lines.append("")
        return lines


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard output and error the same terminal. Not a fixture: pytest sets them again after those."""
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
    def test_stays_below_what_is_logged_and_printed(self, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_is_not_painted_into_a_line_that_the_program_has_begun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        console = Console()
        console.show_status("epoch 1")
        print("half", end="")
        console.show_status("epoch 2")
        assert terminal.screen() == ["half"]
        print(" a line")
        assert terminal.screen() == ["half a line", "epoch 2"]

    def test_gives_standard_output_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        console = Console()
        console.show_status("epoch 1")
        assert sys.stdout is not terminal
        assert sys.stdout.isatty()
        console.show_status("")
        assert sys.stdout is terminal

    def test_leaves_standard_output_alone_where_that_is_a_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        file = io.StringIO()
        monkeypatch.setattr("sys.stdout", file)
        console = Console()
        console.show_status("epoch 1")
        print("printed")
        console.show_status("")
        assert (sys.stdout, file.getvalue()) == (file, "printed\n")
        assert terminal.screen() == [""]

    def test_is_shorter_than_a_row(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = on_terminal(monkeypatch)
        Console().show_status("x" * 100)
        assert terminal.screen() == ["x" * 39]

    def test_is_for_terminals_without_a_prompt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        on_terminal(monkeypatch)
        assert Console().takes_status
        monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
        assert not Console().takes_status
        monkeypatch.delattr("sys.ps1")
        monkeypatch.setattr("sys.stderr", io.StringIO())
        assert not Console().takes_status
