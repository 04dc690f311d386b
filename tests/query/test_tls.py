"""State servers and proxies on an address that other hosts can reach."""

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import self_signed

from penstock.common.addresses import is_loopback
from penstock.query.client import QueryableStateClient
from penstock.query.errors import NotAllowed, NotTrusted, UnknownJob, Unreachable
from penstock.query.flight_server import CannotServeState
from penstock.query.launching import Launch, LaunchedServer
from penstock.query.server import StateServer


@pytest.fixture(scope="module")
def address():
    """An address of this host that is not on the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing; the address is one for documentation.
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("all addresses of this host are those of loopback")
        found = probe.getsockname()[0]
    assert not is_loopback(found)
    return found


@pytest.fixture
def secured(settings, address, tmp_path):
    """Settings of servers with TLS on that address, in place of those on loopback."""
    certificate, key = self_signed(tmp_path, address)
    settings |= {
        "queryable-state.bind-address": address,
        "queryable-state.ssl.certificate": certificate,
        "queryable-state.ssl.private-key": key,
        "queryable-state.ssl.ca": certificate,
        "queryable-state.linger": "0 ms",
    }
    return settings


@pytest.fixture
def reach(secured, address):
    """`reach(**options)` returns a client of the proxy there."""
    clients = []

    def connected(**options):
        port = int(secured["queryable-state.proxy.ports"])
        defaults = {"authorities": secured["queryable-state.ssl.ca"], "timeout": 60}
        if "token" not in options:
            defaults["token_file"] = secured["queryable-state.auth.token-file"]
        clients.append(QueryableStateClient(address, port, **(defaults | options)))
        return clients[-1]

    yield connected
    for each in clients:
        each.close()


def await_value(client, job, expected):
    while True:
        with suppress(Unreachable, UnknownJob):
            assert client.get(job, "the value", "ann") == expected
            return


def commands():
    """Return the command lines and environments of all processes that can be read."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and process.name != str(os.getpid()):
            for name in ("cmdline", "environ"):
                with suppress(OSError):
                    found.append((process / name).read_bytes())
    return found


def test_clients_beyond_loopback_need_the_authority_and_the_token(job, secured, reach, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    job.run(("ann", 3))
    token = Path(secured["queryable-state.auth.token-file"]).read_text().strip()
    server = LaunchedServer(Launch(job_id="the-id", job_name="job", root=job.root.where, settings=secured))
    try:
        trusting = reach()
        await_value(trusting, "the-id", 3)
        with trusting.pinned("the-id") as pinned:
            assert pinned.scan("the value").read_all().num_rows == 1
        shown = b"\n".join(commands())
        assert b"penstock.query.launching" in shown
        assert token.encode() not in shown

        (tmp_path / "other").mkdir()
        other, _ = self_signed(tmp_path / "other")
        with pytest.raises(NotTrusted, match="authorities="):
            reach(authorities=other, timeout=1).get("the-id", "the value", "ann")
        with pytest.raises(NotTrusted, match="authorities="):
            # The authorities of the operating system.
            reach(authorities="", tls=True, timeout=1).get("the-id", "the value", "ann")
        with pytest.raises(Unreachable):
            reach(authorities="", timeout=1).get("the-id", "the value", "ann")
        for wrong in ("", "wrong", token[:-1]):
            refused = reach(token=wrong)
            for read in (
                lambda client: client.get("the-id", "the value", "ann"),
                lambda client: client.scan("the-id", "the value").read_all(),
                lambda client: client.jobs(),
            ):
                with pytest.raises(NotAllowed, match="token is missing or wrong"):
                    read(refused)
        assert trusting.get("the-id", "the value", "ann") == 3
    finally:
        server.kill()
    assert token not in caplog.text
    assert "PRIVATE KEY" not in caplog.text


def test_servers_register_with_a_proxy_over_tls_only_if_they_trust_it(make_job, secured, reach, tmp_path):
    jobs = [make_job(f"job{number}") for number in range(3)]
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other")
    servers = [StateServer(secured | changed) for changed in ({}, {}, {"queryable-state.ssl.ca": other})]
    try:
        for number, (each, job) in enumerate(zip(servers, jobs, strict=True)):
            job.run(("ann", 3))
            each.await_checkpoint(each.follow(f"id{number}", f"job{number}", job.root), 1)
            each.register()
        assert servers[0].proxy_address.startswith("grpc+tls://")
        assert [each.job_name for each in reach().jobs()] == ["job0", "job1"]
        assert reach().get("id1", "the value", "ann") == 3
        with pytest.raises(UnknownJob):
            reach(timeout=0).get("id2", "the value", "ann")
    finally:
        for each in servers:
            each.close()


def test_a_certificate_for_another_name_is_not_trusted(job, secured, reach, tmp_path):
    job.run(("ann", 3))
    (tmp_path / "other").mkdir()
    certificate, key = self_signed(tmp_path / "other")
    other = {"certificate": certificate, "private-key": key, "ca": certificate}
    server = StateServer(secured | {f"queryable-state.ssl.{name}": value for name, value in other.items()})
    try:
        server.follow("the-id", "job", job.root)
        server.register()
        with pytest.raises(NotTrusted, match="is for another name"):
            reach(authorities=certificate, timeout=1).jobs()
    finally:
        server.close()


def test_an_address_beyond_loopback_needs_a_certificate(settings, address):
    with pytest.raises(CannotServeState, match=f"'{address}', which other hosts can reach"):
        StateServer(settings | {"queryable-state.bind-address": address})
