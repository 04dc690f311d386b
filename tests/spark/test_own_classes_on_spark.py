"""A program with classes in its own file, started in all usual ways: on Spark, killed, and started again."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import own_classes
import pytest

PROGRAM = Path(own_classes.__file__)
TEXT = PROGRAM.read_text()

# Imitates a notebook kernel: cells run in `__main__`, which has no file.
CELLS = """
import sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
text = open(sys.argv[1]).read()
cells = text.split("\\nclass Judge")
vars(main).update(__builtins__=__builtins__)
for number, cell in enumerate([cells[0], "from __future__ import annotations\\nclass Judge" + cells[1]]):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), vars(main))
"""
WAYS = {
    "penstock run": [sys.executable, "-m", "penstock.cli.main", "run", str(PROGRAM)],
    "python": [sys.executable, str(PROGRAM)],
    "python -i": [sys.executable, "-i", "-q"],
    "a notebook": [sys.executable, "-c", CELLS, str(PROGRAM)],
}


def run(way: str, folder: Path, crash: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        WAYS[way],
        env={**os.environ, "OWN_CLASSES": str(folder), "PENSTOCK_CRASH": crash},
        cwd=folder,
        # A definition at the prompt ends with an empty line.
        input=f"exec(compile({TEXT!r}, '<stdin>', 'exec'))\n" if way == "python -i" else None,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_program_resumes_with_classes_of_its_new_process(way: str, tmp_path: Path) -> None:
    killed = run(way, tmp_path, f"driver:published:3:{tmp_path / 'killed'}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run(way, tmp_path)
    assert '{"as expected": 60}' in done.stdout, done.stdout + done.stderr


@pytest.mark.spark
def test_program_classes_reach_workers_and_survive_a_restart(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main: Any = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(TEXT, "program.py", "exec", dont_inherit=True), vars(main))
    failed = tmp_path / "failed"

    def fail_once(order: Any) -> Any:
        assert type(order) is main.Order
        if order.before is not None and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return order

    env = make_env(records=20, checkpoints=True, **{"restart-strategy.type": "fixed-delay"})
    with main.build(env, str(tmp_path)).map(fail_once).uid("fail").execute_and_collect("own classes") as results:
        orders = list(results)
    assert failed.exists()
    assert {type(order) for order in orders} == {main.Order}
    texts = [f"{order.customer} {main.total(order)} -" for order in orders]
    assert (len(texts), main.largest(texts)) == (60, main.expected())
