"""Redis Streams as source, and a file sink."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import redis

from chaos.ends.feeder import Away, Lane
from chaos.ends.served import ServedEnds
from chaos.oracle import Output, read_output
from chaos.program import record
from chaos.servers.redis import RedisServer


class RedisEnds(ServedEnds):
    def __init__(self, work: Path, streams: int) -> None:
        super().__init__(work)
        self._server = RedisServer(work / "redis", appends=True)
        self._streams = [f"records:{number}" for number in range(streams)]

    def where(self) -> dict[str, str]:
        return {
            "kind": "redis",
            "address": self._server.url,
            "streams": " ".join(self._streams),
            "out": str(self._work / "out"),
        }

    def prepare(self) -> None:
        """Do nothing: the first entry creates a stream."""

    def lanes(self) -> list[Lane]:
        return [Adding(self._server, stream) for stream in self._streams]

    def output(self) -> dict[str, Output]:
        return read_output(self._work / "out")

    def start_server(self) -> None:
        self._server.start()

    def kill_server(self) -> None:
        self._server.kill()

    def stop_server(self, dice: random.Random) -> str:
        self._server.stop()
        return "stopped"

    def pause_server(self) -> None:
        self._server.pause()

    def resume_server(self) -> None:
        self._server.resume()

    def cut_connections(self) -> int:
        with self._server.client() as client:
            return int(client.client_kill_filter(_type="normal", skipme=True))

    def end_server(self) -> None:
        self._server.stop()


class Adding:
    """A lane for one stream. Record numbers are the entry ids, so Redis rejects duplicates."""

    def __init__(self, server: RedisServer, stream: str) -> None:
        self._client = server.client(socket_timeout=10)
        self._stream = stream

    def reached(self) -> int:
        last: list[Any] = self._client.xrevrange(self._stream, count=1)  # type: ignore[assignment]
        return int(last[0][1][b"number"]) + 1 if last else 0

    def put(self, numbers: list[int], dice: random.Random) -> None:
        try:
            for number in numbers:
                self._add(number)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise Away from error

    def _add(self, number: int) -> None:
        each = record(number)
        # Redis does not allow id 0-0.
        entry = f"{number + 1}-0"
        try:
            self._client.xadd(self._stream, {"number": number, "key": each.key, "at": each.timestamp}, id=entry)
        except redis.ResponseError as error:
            # Either the entry exists and only the answer was lost, or it can never be added.
            if "equal or smaller" not in str(error) or not self._client.xrange(self._stream, entry, entry):
                raise

    def close(self) -> None:
        self._client.close()
