"""The rig's observer reports violations in the files of a running job."""

from pathlib import Path

import pytest
from victim import run_victim

from chaos.observer import Observer


@pytest.fixture
def seen(tmp_path: Path) -> Observer:
    """Return an observer that has seen a good run in `tmp_path`."""
    run_victim(tmp_path, 200)
    observer = Observer(tmp_path)
    observer.look()
    observer.look()
    assert observer.violations == []
    return observer


def files(work: Path, pattern: str) -> list[Path]:
    return sorted(path for path in work.glob(pattern) if path.is_file())


@pytest.mark.parametrize("pattern", ["checkpoints/*/*/manifests/*", "checkpoints/*/*/deltas/*/*", "out/part-*"])
def test_a_changed_published_file_is_reported(seen: Observer, tmp_path: Path, pattern: str) -> None:
    path = files(tmp_path, pattern)[0]
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-2] + b"?\n")
    seen.look()
    assert any(f"{path} changed after" in wrong for wrong in seen.violations)


def test_a_file_restored_unchanged_is_not_reported(seen: Observer, tmp_path: Path) -> None:
    path = files(tmp_path, "checkpoints/*/*/manifests/*")[0]
    content = path.read_bytes()
    seen.pause()
    path.unlink()
    path.write_bytes(content)
    seen.resume()
    seen.look()
    assert seen.violations == []


def test_missing_or_incomplete_output_is_reported(seen: Observer, tmp_path: Path) -> None:
    gone = files(tmp_path, "out/part-*")[0]
    gone.unlink()
    (tmp_path / "out" / "part-x").write_text("half a li")
    (tmp_path / "out" / ".hidden").write_text("half a li")
    seen.look()
    assert sorted(wrong.split(" ", 1)[1] for wrong in seen.violations) == [
        "disappeared after it became visible",
        "is visible but incomplete",
    ]


def test_decreasing_checkpoint_numbers_are_reported(seen: Observer, tmp_path: Path) -> None:
    files(tmp_path, "checkpoints/*/*/manifests/*")[-1].unlink()
    seen.look()
    assert any("the newest checkpoint is" in wrong for wrong in seen.violations)


@pytest.mark.parametrize("pattern", ["checkpoints/*/*/manifests/*", "checkpoints/*/*/deltas/*/*"])
def test_a_missing_file_of_the_newest_checkpoint_is_reported(tmp_path: Path, pattern: str) -> None:
    run_victim(tmp_path, 200)
    files(tmp_path, pattern)[0].unlink()
    observer = Observer(tmp_path)
    observer.look()
    assert len(observer.violations) == 1
    assert (
        files(tmp_path, "checkpoints/*/*/manifests/*")[-1].name in observer.violations[0]
        or "cannot be read" in (observer.violations[0])
    )


def test_observations_outlive_the_observer(seen: Observer, tmp_path: Path) -> None:
    path = files(tmp_path, "out/part-*")[0]
    path.write_text("another content\n")
    next_one = Observer(tmp_path)
    next_one.recall(seen.remember())
    next_one.look()
    assert next_one.violations == [f"{path} changed after it became visible"]
