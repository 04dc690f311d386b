"""py4j's logging after the JVM is gone."""

from __future__ import annotations

import logging
import socket
import struct
import threading

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters

from penstock.spark.session import quiet_bridge


def cut_off(listener: socket.socket) -> None:
    """Accept a command and end like a killed process, with a connection reset."""
    connection, _ = listener.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_an_interrupted_call_logs_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
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
