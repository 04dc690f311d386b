"""Random damage to requests: every one gets an error or an answer, and the server lives on."""

import os
import random

from pyarrow import flight

from penstock.query.connection import ACTION
from penstock.query.errors import BY_CODE
from penstock.query.protocol import (
    Changes,
    Describe,
    Entries,
    Get,
    GetMany,
    Hold,
    Jobs,
    Release,
    Scan,
    decode_failure,
    encode,
)
from penstock.query.reads import MapRange
from penstock.state.keys import encode_key

REQUESTS = int(os.environ.get("PENSTOCK_MUTATIONS", "600"))
KEY = encode_key("ann")
VALID = [
    Get(job="id0", state="the value", key=KEY, deadline_ms=0),
    GetMany(job="id0", state="the list", keys=[KEY, encode_key("bob")], deadline_ms=0),
    Entries(job="id0", state="the map", key=KEY, wanted=MapRange(start=encode_key("n"), limit=3), deadline_ms=0),
    Describe(job="id0", deadline_ms=0),
    Hold(job="id0", lease_ms=10, deadline_ms=0),
    Release(job="id0", lease="abc", deadline_ms=0),
    Jobs(),
]
STREAMS = [
    Scan(job="id0", state="the map", deadline_ms=0),
    Changes(job="id0", state="the value", deadline_ms=0),
]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with one to three random changes."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        change = rng.randrange(4)
        if change == 0:
            data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
        elif change == 1:
            data = data[:at] + data[at + rng.randint(1, 8) :]
        elif change == 2 and data:
            data = data[: at - 1] + rng.randbytes(1) + data[at:]
        else:
            data = data[:at]
    return data


def test_damaged_requests_never_stop_a_server(job, serve, settings, client):
    job.run(("ann", 3), ("bob", 1))
    server = serve(job)
    rng = random.Random(11)
    headers = client._connection._headers
    codes = set()
    connections = [flight.connect(server.address), flight.connect(server.proxy_address)]
    options = flight.FlightCallOptions(headers=headers, timeout=20)
    for number in range(REQUESTS):
        connection = connections[number % 2]
        try:
            if number % 5:
                list(connection.do_action(flight.Action(ACTION, damaged(rng, encode(rng.choice(VALID)))), options))
            else:
                connection.do_get(flight.Ticket(damaged(rng, encode(rng.choice(STREAMS)))), options).read_all()
            codes.add("answered")
        except flight.FlightError as error:
            codes.add(decode_failure(error.extra_info).code)
    assert "bad-request" in codes
    assert codes <= {*BY_CODE, "answered"} - {"failed", "unreachable"}
    assert client.get("id0", "the value", "ann") == 3
