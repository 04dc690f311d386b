"""Random and damaged requests over raw sockets."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable

from fake_gateway import COUNT, EXECUTOR, JOB
from http_service import exchanged, multipart

from penstock.rest.agent_endpoints import AGENT_ENDPOINTS
from penstock.rest.endpoints import ENDPOINTS
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "BREW", ""]
SEGMENTS = [
    JOB,
    COUNT,
    EXECUTOR,
    "0",
    "-1",
    "9" * 40,
    "..",
    "%2e%2e",
    "%00",
    "é",
    "%ff",
    "x" * 5000,
    "",
    "'",
    "{}",
    "*",
]
VALUES = [
    "",
    "0",
    "-1",
    "true",
    "x",
    "9" * 30,
    "%00",
    "a,b,,c",
    "cancel",
    "min,max",
    "../..",
    "%f0%9f%92%a9",
    "bytes=0-",
]
JSON = [
    None,
    True,
    0,
    -1,
    1e308,
    2**70,
    "",
    "x",
    "../x",
    "\0",
    "\ud800",
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "e" * 32,
    "/s",
]
FIELDS = [
    *("target-directory", "cancel-job", "drain", "triggerId", "parallelism", "entryClass", "programArgsList", "jobId"),
    *("savepointPath", "flinkConfiguration", "claimMode", "savepoint-path", "jobVertexResourceRequirements", "path"),
]
HEADERS = [
    *("Host: localhost", "Host: evil", "Origin: null", "Content-Length: 5", "Content-Length: -1", "Range: bytes=1-"),
    *("Transfer-Encoding: chunked", "Content-Type: application/json", "Content-Type: multipart/form-data; boundary=XX"),
    *("Expect: 100-continue", "Upgrade: websocket", "Connection: upgrade", "Connection: close", "Cookie: \xff"),
    *("Authorization: Bearer x", "Last-Event-ID: x", "X-Penstock-Request: 1", "Sec-Fetch-Site: cross-site", "\xe9: y"),
]


def fuzzed(random: random.Random) -> bytes:
    """Return a request: valid in most parts, with random values, and in half of all cases damaged."""
    endpoint = random.choice([*ENDPOINTS, *OWN_ENDPOINTS, *TEXT_ENDPOINTS, *AGENT_ENDPOINTS])
    path = "/".join(
        random.choice(SEGMENTS) if part.startswith(":") and random.random() < 0.5 else _usual(part)
        for part in endpoint.path.split("/")
    )
    if random.random() < 0.3:
        path += "/" + random.choice(SEGMENTS)
    names = [*endpoint.query, "follow", "after", "x"]
    query = "&".join(f"{random.choice(names)}={random.choice(VALUES)}" for _ in range(random.randrange(3)))
    method = endpoint.method if random.random() < 0.8 else random.choice(METHODS)
    body = _body(random)
    headers = ["Host: localhost", f"Content-Length: {len(body)}", "Connection: close"]
    headers += random.choices(HEADERS, k=random.randrange(4))
    head = f"{method} {path}{'?' if query else ''}{query} HTTP/1.1\r\n" + "".join(f"{each}\r\n" for each in headers)
    data = bytearray(head.encode("utf-8", "surrogateescape") + b"\r\n" + body)
    if random.random() < 0.5:
        for _ in range(random.randrange(1, 8)):
            data[random.randrange(len(data))] = random.randrange(256)
    if random.random() < 0.2:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def _usual(part: str) -> str:
    usual = {":jobid": JOB, ":vertexid": COUNT, ":taskmanagerid": EXECUTOR, ":name": "job-1.log"}
    return usual.get(part, "1" if part.startswith(":") else part)


def _body(random: random.Random) -> bytes:
    kind = random.randrange(5)
    if kind == 0:
        return b""
    if kind == 1:
        return random.randbytes(random.randrange(200))
    if kind == 2:
        return multipart(random.choice(["a.py", "../x", "", "\0"]), random.randbytes(random.randrange(5000)))[0]
    fields = {random.choice(FIELDS): random.choice(JSON) for _ in range(random.randrange(4))}
    return json.dumps(fields).encode()


def check(port: int, numbers: Iterable[int], job: str = JOB, skipped: tuple[bytes, ...] = ()) -> Counter[bytes]:
    """Send requests to a service with this job, assert that none is an internal error, and return their statuses.

    Equal numbers give equal requests. Those that begin with one of `skipped` are left out.
    """
    statuses: Counter[bytes] = Counter()
    for number in numbers:
        data = fuzzed(random.Random(number)).replace(JOB.encode(), job.encode())
        if data.startswith(skipped):
            continue
        answer = exchanged(port, data, ends=True)
        status = answer[9:12]
        statuses[status] += 1
        assert status in (b"", b"100") or 200 <= int(status) < 500 or status == b"503", (number, data, answer)
    assert len(statuses) > 4, "the requests reach several parts of the service"
    return statuses
