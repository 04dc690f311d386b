"""The end of a log, without incomplete lines."""

import pytest

pytest.importorskip("nicegui", reason="NiceGUI is not installed: pip install 'penstock[web]'")

from penstock.web.log_page import tail


def test_the_end_of_a_log_begins_with_a_complete_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    lines = tail(log, most=100).splitlines()
    assert lines[-1] == "line 999"
    assert lines[0] == f"line {1000 - len(lines)}"


def test_lines_are_filtered_regardless_of_case(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"Error: one\nfine\nan ERROR \xff\n")
    assert tail(log, "error") == "Error: one\nan ERROR \ufffd\n"
