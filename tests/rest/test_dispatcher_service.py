"""The process of a Dispatcher."""

import pytest

from penstock.rest.dispatcher_service import _warn_if_out_of_reach


@pytest.mark.parametrize(
    ("kind", "quorum", "host", "warns"),
    [
        ("zookeeper", "zk1:2181, zk2:2181", "127.0.0.1", True),
        ("zookeeper", "localhost:2181,zk2:2181", "localhost", True),
        ("zookeeper", "localhost:2181,127.0.0.1:2182", "127.0.0.1", False),
        ("zookeeper", "zk1:2181", "host-a", False),
        ("none", "zk1:2181", "127.0.0.1", False),
    ],
)
def test_a_dispatcher_warns_if_those_of_other_hosts_cannot_reach_it(
    kind: str, quorum: str, host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"high-availability.type": kind, "high-availability.zookeeper.quorum": quorum}
    _warn_if_out_of_reach(settings, host, f"http://{host}:8081")
    assert ("rest.bind-address" in caplog.text) == warns
