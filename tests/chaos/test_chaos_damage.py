"""How the rig damages files, and which ones."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from victim import run_victim

from chaos import storage_faults
from chaos.damage import choose_needed, cut, flip, needed_files
from penstock.checkpoint import manifest_chain
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import read_values


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_truncates_a_file_and_a_flip_changes_one_bit(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "file"
    content = bytes(range(100))
    path.write_bytes(content)
    flip(path, random.Random(seed))
    changed = path.read_bytes()
    assert sum((one ^ other).bit_count() for one, other in zip(content, changed, strict=True)) == 1
    cut(path, random.Random(seed))
    assert len(path.read_bytes()) < 100


def test_every_needed_file_exists_and_is_required_to_read_the_state(tmp_path: Path) -> None:
    lineage = run_victim(tmp_path, 200)
    storage = LocalStorage(lineage)
    names = needed_files(storage)
    assert {name.split("/")[0] for name in names} == {"manifests", "deltas"}
    for name in names[1:]:
        (lineage / name).rename(tmp_path / "kept")
        manifest_chain._manifests.clear()
        with pytest.raises(PenstockError, match=name.rsplit("/", 1)[1]):
            read_values(storage, "first", "n", int)
        (tmp_path / "kept").rename(lineage / name)
    assert read_values(storage, "first", "n", int)


@pytest.mark.parametrize("seed", range(12))
def test_the_newest_manifest_is_never_removed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, lineage: Path
) -> None:
    path, how = choose_needed(lineage, random.Random(seed))
    assert path.exists()
    newest = sorted((lineage / "manifests").iterdir())[-1]
    assert path != newest or how != "remove"


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_victim(tmp_path_factory.mktemp("run"), 200)


PROGRAM = """
import sys
from pathlib import Path
from chaos.storage_faults import install
install()
root, elsewhere = Path(sys.argv[1]), Path(sys.argv[2])
def attempt(work):
    try:
        work()
        return 0
    except OSError as error:
        return error.errno
elsewhere.write_text("")
print(attempt(lambda: (root / "new").write_text("x")), attempt(lambda: (root / "old").read_text()),
      attempt(lambda: (root / "old").rename(root / "older")), attempt(lambda: elsewhere.write_text("x")))
"""


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (storage_faults.WELL, [0, 0, 0, 0]),
        (storage_faults.FULL, [errno.ENOSPC, 0, 0, 0]),
        (storage_faults.FAILING, [errno.EIO, errno.EIO, errno.EIO, 0]),
        (storage_faults.SLOW, [0, 0, 0, 0]),
    ],
)
def test_storage_fails_as_configured_and_only_below_its_directories(
    tmp_path: Path, what: int, expected: list[int]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_text("")
    control = tmp_path / "control"
    storage_faults.create(control)
    storage_faults.set_storage(control, what, 100, 1)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), str(tmp_path / "elsewhere")],
        env={**os.environ, "PYTHONPATH": os.getcwd(), storage_faults.VARIABLE: f"{control}:{root}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(map(int, done.stdout.split())) == expected
