"""Ports of servers that start later: each is free, and given once."""

import socket

import pytest

from chaos.servers import ports


def test_ports_differ_although_nothing_listens_on_them_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 40))
    given = [ports.free_port() for _ in range(30)]
    assert len({first, *given}) == 31


def test_a_port_on_which_a_server_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ports.free_port(), ports.free_port()
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports, "_PORTS", [first, second])
    with socket.create_server(("127.0.0.1", first)):
        assert ports.free_port() == second
