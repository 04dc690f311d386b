"""What py4j logs when the JVM is gone."""

from __future__ import annotations

import logging
import socket
import struct
import threading

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters

from penstock.spark.session import quiet_bridge


def cut_off(listener: socket.socket) -> None:
    """Take a command and end as a killed process does: the connection is reset."""
    connection, _ = listener.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_call_that_is_cut_off_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    quiet_bridge()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=cut_off, args=(listener,))
        server.start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=listener.getsockname()[1]))
        client.send_command("c\nx\ne\n", retry=False)
        server.join()
    assert "Exception while sending command" not in caplog.text


def test_other_errors_are_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    quiet_bridge()
    try:
        raise ValueError("mine")
    except ValueError:
        logging.exception("the program says so")
    assert "mine" in caplog.text
