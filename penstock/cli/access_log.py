"""A generated access log, reproducible by seed, and an independent count of it in plain Python."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path

_FIRST_REQUEST = 1_700_000_000
_REQUESTS_PER_SECOND = 500

_SECTIONS = ("api", "users", "orders", "search", "static", "docs")
_URLS = ["/", *(f"/{section}/{number}" for number in range(50) for section in _SECTIONS)]
_CLIENTS = [f"203.0.113.{host}" for host in range(1, 255)]
_ANSWERS = ("200 512", "200 2326", "200 8190", "304 0", "404 153")


def write_access_log(folder: Path, records: int, files: int, seed: int = 42) -> int:
    """Write `records` requests in Nginx's log format, spread over `files` files, and return the number of lines.

    A few URLs get most of the requests: the URL of rank n gets a share of 1/n. Spark reads files in the order of their
    modification times, in milliseconds, so each file gets a distinct one.
    """
    chance = random.Random(seed)
    urls = list(_URLS)
    chance.shuffle(urls)
    weights = list(accumulate(1 / rank for rank in range(1, len(urls) + 1)))
    folder.mkdir(parents=True)
    written = 0
    for number in range(files):
        size = records // files + (number < records % files)
        clients, answers = chance.choices(_CLIENTS, k=size), chance.choices(_ANSWERS, k=size)
        requests = zip(clients, chance.choices(urls, cum_weights=weights, k=size), answers, strict=True)
        moments = (_moment(place // _REQUESTS_PER_SECOND) for place in range(written, written + size))
        lines = [
            f'{client} - - [{moment}] "GET {url} HTTP/1.1" {answer} "-" "curl/8.5.0"\n'
            for moment, (client, url, answer) in zip(moments, requests, strict=True)
        ]
        path = folder / f"access-{number:03d}.log"
        path.write_text("".join(lines))
        modified = (_FIRST_REQUEST * 1000 + number) * 1_000_000
        os.utime(path, ns=(modified, modified))
        written += len(lines)
    return written


def count_urls(folder: Path) -> Counter[str]:
    """Count the requests per URL. It shares no code with the job, because it verifies the job's result."""
    counts: Counter[bytes] = Counter()
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as lines:
            counts.update(line.split(b'"', 2)[1].split(b" ")[1] for line in lines)
    return Counter({url.decode(): count for url, count in counts.items()})


_moments: dict[int, str] = {}


def _moment(second: int) -> str:
    text = _moments.get(second)
    if text is None:
        text = _moments[second] = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(_FIRST_REQUEST + second))
    return text
