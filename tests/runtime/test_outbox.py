"""Rows that wait to be sent: all of them, in order, for any memory budget."""

import os

import pytest

from penstock.runtime.outbox import Outbox
from penstock.runtime.rows import DATA, ExchangeRow


def row(number):
    return ExchangeRow(0, 0, 0, number, DATA, bytes([number]) * number)


def nameless_files():
    return [link for fd in os.listdir("/proc/self/fd") if "(deleted)" in (link := link_of(fd))]


def link_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("budget", [0, 20, 10_000])
def test_rows_are_drained_in_order_for_any_memory_budget(budget):
    outbox = Outbox(budget)
    rows = [row(number) for number in range(50)]
    for each in rows:
        outbox.append(each)
    assert list(outbox.drain()) == rows
    assert not outbox
    outbox.append(rows[3])
    assert list(outbox.drain()) == [rows[3]]


def test_unsent_rows_leave_no_file_behind():
    before = nameless_files()
    outbox = Outbox(budget=10)
    for number in range(50):
        outbox.append(row(number))
    assert len(nameless_files()) == len(before) + 1
    outbox.clear()
    assert nameless_files() == before
