"""Downloading PyFlink's wheel."""

from pathlib import Path

import pytest

from scripts.pyflink_wheel import IndexUnreachable, file_names, read, wheel_path


def test_files_in_the_wheel_can_be_read(pyflink_wheel: Path) -> None:
    assert pyflink_wheel.suffix == ".whl"
    assert "pyflink/common/time.py" in file_names()
    assert "class Duration" in read("pyflink/common/time.py")


def test_an_unreachable_index_raises_its_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for other in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(other, raising=False)
    with pytest.raises(IndexUnreachable, match="pip reaches no package index"):
        wheel_path.__wrapped__()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RuntimeError, match=r"pip could not download apache-flink==2\.3\.0"):
        wheel_path.__wrapped__()
    assert not list(tmp_path.rglob("*.whl"))
