"""Enrich orders with prices by asynchronous calls to an HTTP server.

A task has up to a hundred calls in flight, so the job is as fast as the server instead of making one call after the
other. A call to a busy server is retried. An order without a price after ten seconds is emitted without one, and an
order of an unknown product is dropped.

The client uses only asyncio's streams, to avoid a dependency. With a library such as aiohttp, create its session in
`async def open` and close it in `async def close`. The server is part of the example.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.common import Time
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    StreamExecutionEnvironment,
)

PRICES = {"apple": 30, "bread": 250, "coffee": 480}
SAMPLE = [("apple", 3), ("bread", 1), ("unicorn", 1), ("coffee", 2), ("apple", 10)]


class Enrich(AsyncFunction):
    """Turns (product, pieces) into (product, pieces, total price in cents)."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def async_invoke(self, value: tuple[str, int]) -> list[tuple[str, int, int | None]]:
        product, pieces = value
        status, body = await get(self.port, f"/prices/{product}")
        if status == 404:
            return []
        if status != 200:
            raise ConnectionError(f"The server answered {status} for {product}.")
        return [(product, pieces, pieces * int(body))]

    def timeout(self, value: tuple[str, int]) -> list[tuple[str, int, int | None]]:
        product, pieces = value
        return [(product, pieces, None)]


async def get(port: int, path: str) -> tuple[int, bytes]:
    """Return the status and body of a response from a server on this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return int(head.split(b" ", 2)[1]), body


def build(orders: DataStream, port: int) -> DataStream:
    again = AsyncRetryStrategy.exponential_backoff(
        5, 10, 1000, 2.0, None, lambda error: isinstance(error, ConnectionError)
    )
    return AsyncDataStream.unordered_wait_with_retry(orders, Enrich(port), Time.seconds(10), again).uid("enrich")


@contextmanager
def price_server() -> Iterator[int]:
    """Run a server that is busy at the first request for each product, and yield its port."""
    asked = set()

    class Prices(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            product = self.path.rpartition("/")[2]
            status = 503 if product not in asked else 200 if product in PRICES else 404
            asked.add(product)
            self.send_response(status)
            self.end_headers()
            if status == 200:
                self.wfile.write(str(PRICES[product]).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Prices)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    with price_server() as port:
        build(env.from_collection(SAMPLE), port).print()
        env.execute("enrich-async")
