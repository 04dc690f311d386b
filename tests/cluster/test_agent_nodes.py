"""Dispatchers find each other by host in ZooKeeper, whether they lead or have withdrawn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dispatchers import Member, settings_for, until
from kazoo.client import KazooClient

from penstock.cluster.leadership import StepDown
from penstock.cluster.zookeeper import ZooKeeperCoordination
from penstock.cluster.zookeeper_client import ZooKeeperSettings

pytestmark = pytest.mark.slow
Make = Callable[..., ZooKeeperCoordination]


@pytest.fixture
def dispatcher(settings: ZooKeeperSettings) -> Iterator[Make]:
    """`dispatcher(host, port)` takes part until the test ends."""
    made: list[ZooKeeperCoordination] = []

    def make(host: str, port: int = 1) -> ZooKeeperCoordination:
        coordination = ZooKeeperCoordination(settings, host)
        coordination.start(f"http://{host}:{port}", lambda instruction: None)
        made.append(coordination)
        return coordination

    yield make
    for each in made:
        each.close()


@pytest.fixture
def admin(settings: ZooKeeperSettings) -> Iterator[Any]:
    client = KazooClient(settings.quorum, auth_data=[("digest", settings.credentials)])
    client.start()
    yield client
    client.stop()
    client.close()


def renew_session(dispatcher: ZooKeeperCoordination) -> None:
    """Let a client forget its session, whose nodes stay until the server notices, and wait for the next one."""
    connection = dispatcher._connection
    lost = connection.session
    connection.client._reset_session()
    connection.client._connection._socket.shutdown(socket.SHUT_RDWR)
    until(lambda: connection.session not in (None, lost), "another session")


def test_all_other_dispatchers_are_known_by_their_hosts(dispatcher: Make) -> None:
    a, b, other = dispatcher("a"), dispatcher("b"), dispatcher("b", 2)
    until(lambda: a.agents() == {"b": ("http://b:1", "http://b:2")})
    until(lambda: b.agents() == {"a": ("http://a:1",), "b": ("http://b:2",)})
    other.close()
    until(lambda: a.agents() == {"b": ("http://b:1",)})
    assert other.agents() == {}


def test_a_dispatcher_that_withdraws_lets_another_one_lead_and_remains_an_agent(
    settings: ZooKeeperSettings, member: Callable[..., Member], admin: Any
) -> None:
    one = member(settings, "http://one:1").leads()
    two = member(settings, "http://two:1")
    until(two.coordination.leader_address)
    one.coordination.withdraw()
    two.leads()
    assert not one.coordination.leading
    until(lambda: isinstance(one.instructions[-1], StepDown), "the step down")
    until(lambda: one.coordination.leader_address() == "http://two:1")
    [addresses] = two.coordination.agents().values()
    assert list(addresses) == ["http://one:1"]
    # It does not come back when no other one leads, and not with another session either.
    two.coordination.close()
    renew_session(one.coordination)
    until(lambda: f"{one.coordination._connection.session:016x}" in admin.get_children(settings.agents))
    assert admin.get_children(settings.latch) == []
    assert not one.coordination.leading


def test_a_dispatcher_that_withdraws_before_it_led_never_does(
    settings: ZooKeeperSettings, member: Callable[..., Member], admin: Any
) -> None:
    leader = member(settings).leads()
    standby = member(settings, "there:1")
    until(lambda: len(admin.get_children(settings.latch)) == 2)
    standby.coordination.withdraw()
    until(lambda: len(admin.get_children(settings.latch)) == 1)
    leader.coordination.close()
    until(lambda: admin.get_children(settings.latch) == [])
    until(lambda: standby.coordination.leader_address() is None)
    assert standby.instructions == []


def test_a_new_session_has_a_new_node(dispatcher: Make, settings: ZooKeeperSettings, admin: Any) -> None:
    a, b = dispatcher("a"), dispatcher("b")
    until(lambda: a.agents() and b.agents())
    before = set(admin.get_children(settings.agents))
    renew_session(a)
    until(lambda: len(set(admin.get_children(settings.agents)) - before) == 1, "the node of the new session")
    assert b.agents() == {"a": ("http://a:1",)}


def test_nodes_with_other_contents_are_ignored(dispatcher: Make, settings: ZooKeeperSettings, admin: Any) -> None:
    a = dispatcher("a")
    until(lambda: admin.exists(settings.agents))
    contents = (
        b"",
        b"{",
        b'{"host": "x"}',
        b'{"host": "x", "address": "http://u@evil:1/x"}',
        b'{"host":1,"address":"b:1"}',
    )
    for number, content in enumerate(contents):
        admin.create(f"{settings.agents}/{number}", content)
    dispatcher("b")
    until(lambda: a.agents())
    assert a.agents() == {"b": ("http://b:1",)}
    assert a.problem == ""


def test_a_node_that_disappears_is_made_again(settings: ZooKeeperSettings, dispatcher: Make, admin: Any) -> None:
    a, b = dispatcher("a"), dispatcher("b")
    until(lambda: a.agents() and b.agents())
    node = f"{settings.agents}/{b._connection.session:016x}"
    removed = admin.exists(node).czxid
    admin.delete(node)
    until(lambda: (found := admin.exists(node)) and found.czxid > removed)
    until(lambda: a.agents() == {"b": ("http://b:1",)} and a.problem == b.problem == "")


def test_the_nodes_are_readable_by_the_user_of_the_cluster_only(dispatcher: Make, settings: ZooKeeperSettings) -> None:
    a = dispatcher("a")
    dispatcher("b")
    until(a.agents)
    [entry] = a._connection.call("get_acls", settings.agents)[0]
    assert (entry.id.scheme, entry.perms) == ("digest", 31)
    assert settings_for("x").agents.endswith("/agents")
