"""The check of the executors before a job starts."""

from pathlib import Path
from typing import Any

import pytest

from penstock.spark import executors
from penstock.spark.executors import ExecutorsNotReady, check_executors
from penstock.state.local_storage import LocalStorage

pytestmark = pytest.mark.spark


def test_a_successful_check_leaves_nothing_in_the_directory(session: Any, tmp_path: Path) -> None:
    check_executors(session, LocalStorage(tmp_path / "checkpoints"))
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_directory_visible_only_to_executors_is_refused(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "exists", lambda self, name: False)
    with pytest.raises(ExecutorsNotReady, match=r"state\.checkpoints\.dir must be on storage that all hosts share"):
        check_executors(session, LocalStorage(tmp_path))


def test_a_directory_writable_only_by_the_driver_is_refused(session: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExecutorsNotReady, match=r"An executor cannot write to .*/file/x.*: Cannot write.*all hosts"):
        check_executors(session, LocalStorage(tmp_path / "file" / "x"))


def test_executors_with_another_version_are_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "__version__", "9.9")
    with pytest.raises(ExecutorsNotReady, match=r"the driver has 9\.9"):
        check_executors(session, None)
