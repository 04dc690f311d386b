"""The rig for a whole cluster: real Dispatchers, ZooKeeper, JobManagers and JVMs are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = "dispatcher-kill,host-kill,zookeeper-all"


@pytest.mark.long
def test_a_cluster_keeps_its_promises_while_its_parts_are_killed(tmp_path: Path) -> None:
    words = f"--kills 3 --seed 4 --zookeeper 1 --jobs 1 --kinds {KINDS}".split()
    table = tmp_path / "table"
    done = subprocess.run(
        [sys.executable, "-m", "chaos.service", *words, "--work", str(tmp_path / "work"), "--summary", str(table)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 faults" in table.read_text()
    assert all(f"| {kind} | 1 | 0 |" in table.read_text() for kind in KINDS.split(","))
    assert not (tmp_path / "work").exists()


def test_an_impossible_fault_of_a_cluster_is_rejected_with_the_possible_ones(tmp_path: Path) -> None:
    words = ["--kinds", "zookeeper-one", "--zookeeper", "1", "--work", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "chaos.service", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "fault 'zookeeper-one' is not possible here; choose from: dispatcher-kill" in done.stderr


def test_a_run_on_a_host_without_mount_namespaces_names_the_faults_that_it_lacks(tmp_path: Path) -> None:
    words = ["--kills", "0", "--seed", "1", "--work", str(tmp_path / "work")]
    done = subprocess.run(
        [sys.executable, "-m", "chaos.service", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},  # without `unshare`
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert "not possible on this host: records-read-only, records-full." in done.stdout.splitlines()[-1]
