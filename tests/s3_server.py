"""An S3 server on loopback for the tests: moto in a separate process, with three buckets.

`bucket` behaves like S3. `careless` ignores If-None-Match. `echo` executes every put twice and returns the second
response, which is what a client sees if the first response was lost.

moto checks for an object and then writes it, in threads. Here requests run one at a time, so that a put is atomic, as
on S3. The server ends when its standard input closes, so it never outlives the tests.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKETS = ("bucket", "careless", "echo")


class OneByOne:
    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        bucket = environ["PATH_INFO"].split("/")[1]
        with self._turn:
            if bucket == "careless":
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if bucket == "echo" and environ["REQUEST_METHOD"] == "PUT":
                body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                list(self._app({**environ, "wsgi.input": io.BytesIO(body)}, lambda *_: None))
                environ["wsgi.input"] = io.BytesIO(body)
            return list(self._app(environ, start_response))


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, OneByOne(), threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
