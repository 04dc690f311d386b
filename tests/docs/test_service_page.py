"""The commands of docs/run/service.md, in their order and in a shell, on a host without a service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_host import ServiceHost

from penstock.common.options import OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "run" / "service.md").read_text()
WALK = PAGE[PAGE.index("## From start to shutdown") : PAGE.index("## The parts of the service")]
PROGRAM, CHANGED = re.findall(r"```python\n(.*?)```", WALK, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", WALK, re.DOTALL) for line in block.splitlines()]

(FOLLOW,) = (command for command in COMMANDS if command.startswith("penstock logs"))


def test_the_walk_has_at_most_ten_commands() -> None:
    assert 1 < len(COMMANDS) <= 10


def test_the_unit_of_systemd_leaves_jobs_alone() -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    assert {"KillMode=process", "OOMPolicy=continue", "TasksMax=infinity"} <= set(unit.splitlines())
    assert "penstock cluster start --foreground\n" in unit


def test_the_defaults_of_the_limits_are_those_of_the_settings() -> None:
    limits = PAGE[PAGE.index("### Limits") : PAGE.index("### Use it from another host")]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", limits, re.MULTILINE)
    shown = {
        key: default
        for keys, defaults in rows
        for key, default in zip(re.findall(r"`(.*?)`", keys), defaults.split(", "), strict=True)
    }
    assert len(shown) == 8
    for key, default in shown.items():
        option = OPTIONS[key]
        assert option.type.parse(key, default.lower()) == option.read({}), key


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ServiceHost]:
    host = ServiceHost(tmp_path)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock.cli.main "$@"\n')
    (scripts / "penstock").chmod(0o755)
    host.environment["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    yield host
    host.close()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_run_in_their_order(host: ServiceHost) -> None:
    work = host.folder / "work"
    work.mkdir()
    program = work / "counts.py"
    program.write_text(PROGRAM)
    shell = subprocess.Popen(
        ["sh"],
        cwd=work,
        env=host.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    output: dict[str, str] = {}

    def enter(command: str) -> str:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"{command}\necho ended with $?\n")
        lines = []
        while not (line := shell.stdout.readline()).startswith("ended with "):
            assert line, (command, lines)
            lines.append(line)
        assert line == "ended with 0\n", (command, lines)
        output[command] = "".join(lines)
        return output[command]

    try:
        jobs = []
        for command in COMMANDS:
            if " -s " in command:
                assert PROGRAM.count("\ncounts.print()\n") == 1
                program.write_text(PROGRAM.replace("\ncounts.print()\n", f"\n{CHANGED}"))
            enter(command)
            if command.startswith("penstock run"):
                (job,) = re.findall(r"^[0-9a-f]{32}$", output[command], re.MULTILINE)
                jobs.append(job)
            if command.startswith("penstock rescale"):
                assert set(host.jobs()[jobs[0]]["parallelism"].values()) == {1}
    finally:
        shell.stdin.close()
        shell.wait()

    north, south, resumed = jobs
    assert len({north, south, resumed}) == 3
    assert {"north", "south"} == {
        line.split()[1] for line in output["penstock list"].splitlines() if line.split()[0] in (north, south)
    }
    assert Path(output["penstock savepoint north"].strip()).is_dir()
    # The counts continue where the savepoint was taken.
    counted = re.findall(r"(sensor-\d) ticked (\d+) times", output[FOLLOW])
    before = re.findall(
        r"\('(sensor-\d)', (\d+)\)", (host.cluster / "jobs" / north / "1" / "jobmanager.out").read_text()
    )
    assert counted
    first = {sensor: int(number) for sensor, number in reversed(counted)}
    last = {sensor: int(number) for sensor, number in before}
    assert all(first[sensor] > last[sensor] for sensor in first)
    assert output[COMMANDS[-1]] == "The service stopped.\n"
