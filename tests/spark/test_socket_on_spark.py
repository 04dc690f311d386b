"""Lines from a socket on Spark: the job ends with the connection, and a repeated epoch has the same lines."""

import socket
import threading
from collections import Counter
from typing import Any

import pytest

from penstock.connectors.driver_sinks import DiscardingSink
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

LINES = [f"word{n % 7} {'x' * 1000}" for n in range(2000)]


@pytest.fixture
def port() -> Any:
    """A server that sends all lines to its first client and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        connection = listener.accept()[0]
        connection.sendall("\n".join(LINES).encode())
        connection.close()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    thread.join()
    listener.close()


def test_a_job_ends_with_the_connection_and_has_every_line_once(make_env: Any, port: int) -> None:
    env = make_env(checkpoints=True)

    def first_word(line: str) -> str:
        return line.split()[0]

    lines = env.socket_text_stream("127.0.0.1", port).uid("lines")
    words = lines.map(first_word).key_by(lambda word: word).map(lambda word: word).uid("words")
    with words.execute_and_collect() as results:
        seen = list(results)
    assert Counter(seen) == Counter(map(first_word, LINES))


def test_a_closed_port_is_reported_with_the_address(make_env: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    env = make_env()
    env.socket_text_stream("127.0.0.1", port).sink_to(DiscardingSink())
    with pytest.raises(PenstockError, match=rf"Source 'Socket Stream' .*\n.*Cannot connect to 127.0.0.1:{port}"):
        env.execute()
