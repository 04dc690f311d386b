"""Requests to the REST interface of a service, as a client sends them."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from typing import Any


class RestRequests:
    """Requests to a service on this host that needs no token."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request and return the decoded answer. Fails unless the service accepts it."""
        status, data = self.answer(method, path, body, headers)
        assert status < 300, (method, path, status, data)
        return json.loads(data)

    def answer(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def upload(self, name: str, program: str) -> str:
        """Upload a program and return its id."""
        status, data = self.answer_to_upload(name, program.encode())
        assert status == 200, data
        return str(json.loads(data)["filename"]).rsplit("/", 1)[-1]

    def answer_to_upload(self, name: str, content: bytes, kind: str = "text/x-python") -> tuple[int, bytes]:
        head = f'--b\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\nContent-Type: {kind}'
        body = head.encode() + b"\r\n\r\n" + content + b"\r\n--b--\r\n"
        return self.answer("POST", "/jars/upload", body, {"Content-Type": "multipart/form-data; boundary=b"})

    def run(self, program_id: str, **options: Any) -> str:
        """Run an uploaded program and return the id of the job."""
        return str(self.ask("POST", f"/jars/{program_id}/run", options)["jobid"])

    def state(self, job_id: str) -> str:
        return str(self.ask("GET", f"/jobs/{job_id}/status")["status"])

    def await_state(self, job_id: str, *states: str, within_s: float = 90) -> str:
        """Wait until a job is in one of these states."""
        return self.until(lambda: self.state(job_id), lambda state: state in states, within_s)

    def until(self, look: Callable[[], Any], holds: Callable[[Any], bool], within_s: float = 90) -> Any:
        """Look again and again until the condition holds, and return the last result."""
        deadline = time.monotonic() + within_s
        while not holds(seen := look()):
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
        return seen
