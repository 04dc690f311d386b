"""`python -m bench.service.clients`: many clients that poll a service, one request per second and connection each.

Half of the requests ask for all jobs, the other half for one job in turn. A latency lasts from the moment before the
request is written until its answer is read completely. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

from penstock.rest.contract import JobDetailsInfo, MultipleJobsDetails

_PERIOD_S = 1.0


@dataclass
class Seen:
    """What all clients saw while they were measured."""

    begins: float
    ends: float
    overview_ms: list[float] = field(default_factory=list)
    job_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    """How late the clients woke up for a request: the delay of a process that only waits, on this machine."""
    failures: list[str] = field(default_factory=list)
    oldest_s: float = 0.0
    """The greatest age of a simulated snapshot in an answer."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """The last answer of each path."""


async def poll(number: int, host: str, port: int, token: str, jobs: list[str], simulated: set[str], seen: Seen) -> None:
    """Run one client until the end."""
    dice = random.Random(number)
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(host, port, limit=8 << 20)
    due = loop.time() + dice.random() * _PERIOD_S
    turn = number
    while due < seen.ends:
        await asyncio.sleep(max(0.0, due - loop.time()))
        late = loop.time() - due
        due += _PERIOD_S
        turn += 1
        job = "" if turn % 2 else dice.choice(jobs)
        path = f"/jobs/{job or 'overview'}"
        began = loop.time()
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode("ascii")
        )
        status, body = await _answer(reader)
        took = loop.time() - began
        if began < seen.begins:
            continue
        seen.late_ms.append(late * 1000)
        (seen.job_ms if job else seen.overview_ms).append(took * 1000)
        seen.answers[path] = body
        if status != 200:
            seen.failures.append(f"{path}: {status} {body[:200]!r}")
        elif job in simulated:
            seen.oldest_s = max(seen.oldest_s, time.time() - _records_read(body))
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


def _records_read(body: bytes) -> int:
    """Return the number of records that the source of a simulated job has read: its time. Does not decode the rest."""
    return int(body.partition(b'"write-records":')[2].partition(b",")[0])


async def run(options: argparse.Namespace, token: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    seen = Seen(loop.time() + options.warmup, loop.time() + options.warmup + options.seconds)
    jobs, simulated = options.jobs.split(","), set(filter(None, options.simulated.split(",")))
    await asyncio.gather(
        *(poll(each, options.host, options.port, token, jobs, simulated, seen) for each in range(options.clients))
    )
    return {
        "overview_ms": seen.overview_ms,
        "job_ms": seen.job_ms,
        "late_ms": seen.late_ms,
        "failures": seen.failures,
        "oldest_s": seen.oldest_s,
        "states": _states(seen),
    }


def _states(seen: Seen) -> dict[str, str]:
    """Decode the last answers strictly, and return the states of all jobs."""
    for path, body in seen.answers.items():
        if path != "/jobs/overview":
            msgspec.json.decode(body, type=JobDetailsInfo)
    overview = msgspec.json.decode(seen.answers["/jobs/overview"], type=MultipleJobsDetails)
    return {str(job.jid): str(job.state) for job in overview.jobs}


def main() -> None:
    parser = argparse.ArgumentParser()
    kinds = (("host", str), ("port", int), ("clients", int), ("warmup", float), ("seconds", float), ("jobs", str))
    for name, kind in (*kinds, ("simulated", str)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    options = parser.parse_args()
    # Command lines are visible to other users, so the token arrives on standard input.
    token = sys.stdin.readline().strip()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(options, token))))


if __name__ == "__main__":
    main()
