"""The check of the executors before a job starts."""

import re
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
    with pytest.raises(ExecutorsNotReady, match=r"cannot write to .*/file/x.*: Cannot write.*all hosts"):
        check_executors(session, LocalStorage(tmp_path / "file" / "x"))


def test_executors_with_another_version_are_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "__version__", "9.9")
    with pytest.raises(ExecutorsNotReady, match=r"the driver has 9\.9"):
        check_executors(session, None)


def test_one_message_lists_everything_that_executors_lack(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "__version__", "9.9")
    monkeypatch.setattr(executors.pa, "__version__", "999.0")
    (tmp_path / "file").touch()
    with pytest.raises(ExecutorsNotReady) as caught:
        check_executors(session, LocalStorage(tmp_path / "file" / "x"), ["json", "no_such_module", "no_such.package"])
    first, *lines = str(caught.value).splitlines()
    assert first == "The executors are not ready for this job."
    assert [line.partition(": ")[2].partition(" ")[0] for line in lines] == [
        "penstock",
        "pyarrow",
        "modules",
        "cannot",
    ]
    assert "no_such_module (No module named 'no_such_module'), no_such.package (No module named 'no_such')" in lines[2]
    assert "--py-files" in lines[2]
    assert "--requirements" in lines[2]


def test_a_module_whose_own_import_fails_is_reported_with_the_reason(session: Any, tmp_path: Path) -> None:
    (tmp_path / "needs_another.py").write_text("import no_such_dependency\n")
    session.sparkContext.addPyFile(str(tmp_path / "needs_another.py"))
    with pytest.raises(ExecutorsNotReady, match=r"needs_another .*No module named 'no_such_dependency'"):
        check_executors(session, None, ["needs_another"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark "
            "cannot run with different minor versions.",
            r"The executors have Python 3\.9, but the driver has 3\.\d+\.\d+\. .*spark\.pyspark\.python",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/none/python": error=2, No such file or directory',
            r"An executor cannot run '/opt/none/python', the Python interpreter .*spark\.pyspark\.python",
        ),
    ],
)
def test_executors_without_a_matching_python_are_reported(error: str, message: str) -> None:
    assert re.fullmatch(message + ".*", str(executors._without_python(error)))
