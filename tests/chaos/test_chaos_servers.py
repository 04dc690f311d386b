"""The complete rig without a JVM, with a real server as source or sink that is killed as well."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from chaos.ends.postgres import PostgresEnds
from chaos.plan import HARNESS, SERVER_MIX, make_plan
from chaos.rig import Rig

ROOT = Path(__file__).parents[2]
KINDS = "driver,stop,server,connections"


def chaos(work: Path, ends: str, *words: str) -> subprocess.CompletedProcess[str]:
    given = f"--ends {ends} --kills 5 --seed 3 --master harness --kinds {KINDS}".split()
    return subprocess.run(
        [sys.executable, "-m", "chaos", *given, "--work", str(work), "--summary", str(work.with_name("table")), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["postgres", "redis"])
def test_a_repeatedly_killed_server_loses_and_duplicates_nothing(tmp_path: Path, ends: str) -> None:
    work = tmp_path / "work"
    stopped = chaos(work, ends, "--minutes", "0.05")
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert "To continue: python -m chaos" in stopped.stdout
    done = chaos(work, ends)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No record was lost or duplicated, and the state equals the oracle's." in done.stdout
    assert not work.exists()
    assert "| server | " in (tmp_path / "table").read_text()


@pytest.mark.slow
def test_a_sink_that_loses_its_ledger_is_reported_by_the_rig(tmp_path: Path) -> None:
    def forget(text: str) -> None:
        if " driver " in text:
            # The driver is dead, and the next one commits the last epoch again.
            with psycopg.connect(rig.ends.where()["address"]) as connection:
                connection.execute("DELETE FROM penstock_ledger")

    # Several: a driver that dies before it has committed its last epoch loses nothing, as most do on
    # a busy machine.
    plan = make_plan(5, 8, ["driver"], [HARNESS], SERVER_MIX)
    rig = Rig(tmp_path / "work", "filesystem", plan, forget, make_ends=PostgresEnds)
    try:
        assert rig.run()
    finally:
        rig.ends.remove()
    assert any(violation.startswith("duplicate: ") for violation in rig.progress.violations), rig.progress.violations


def test_impossible_options_for_a_server_are_rejected(tmp_path: Path) -> None:
    disk = chaos(tmp_path / "work", "redis", "--kinds", "disk-slow")
    assert disk.returncode == 2
    assert "fault 'disk-slow' does not apply to filesystem and redis; choose from: driver, checkpoint" in disk.stderr
    memory = chaos(tmp_path / "work", "postgres", "--backend", "memory")
    assert memory.returncode == 2
    assert "every driver starts from scratch" in memory.stderr
