"""The plan of faults for a service, and the file system of its records."""

import subprocess
import sys
from collections import Counter

import pytest

from chaos.service.faults import _INJECTIONS
from chaos.service.plan import ACTIONS, KINDS, make_plan, possible


def test_a_hundred_faults_have_the_weights_of_their_kinds() -> None:
    plan = make_plan(7, 100, list(KINDS))
    assert Counter(step.kind for step in plan) == {name: kind.weight for name, kind in KINDS.items()}
    assert Counter(step.action for step in plan) == ACTIONS
    assert [step.index for step in plan] == list(range(100))


def test_a_plan_depends_on_its_seed_only() -> None:
    assert make_plan(7, 30, list(KINDS)) == make_plan(7, 30, list(KINDS))
    assert make_plan(7, 30, list(KINDS)) != make_plan(8, 30, list(KINDS))


def test_every_kind_of_fault_can_be_injected() -> None:
    assert set(_INJECTIONS) == set(KINDS)


def test_a_cluster_without_zookeeper_has_no_faults_of_zookeeper() -> None:
    kinds = possible(0, mount=False)
    assert "dispatcher-kill" in kinds
    assert not [kind for kind in kinds if kind.startswith(("zookeeper", "records"))]
    assert set(possible(3, mount=True)) == set(KINDS)


MOUNT = """
import errno, sys, tempfile
from pathlib import Path
from chaos.service.records_mount import RecordsMount, can_mount, enter_namespace
enter_namespace(["-c", sys.argv[1], sys.argv[1]])
if not can_mount():
    sys.exit("no namespace")
def attempt(name):
    try:
        Path(records.path, name).write_bytes(b"x")
    except OSError as error:
        return errno.errorcode[error.errno]
    return "written"
with tempfile.TemporaryDirectory() as folder:
    records = RecordsMount(Path(folder, "records"), mounted=True)
    results = [attempt("a")]
    records.make_read_only()
    results.append(attempt("b"))
    records.make_writable()
    records.fill()
    results.append(attempt("c"))
    records.free()
    results.append(attempt("d"))
    records.close()
print(*results)
"""


def test_the_file_system_of_the_records_becomes_read_only_and_full() -> None:
    done = subprocess.run([sys.executable, "-c", MOUNT, MOUNT], capture_output=True, text=True, timeout=60)
    if "no namespace" in done.stderr:
        pytest.skip("the host permits no mount namespace")
    assert done.stdout.split() == ["written", "EROFS", "ENOSPC", "written"], done.stderr
