"""Options for queryable state."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.options.state import BACKEND_ALIASES
from penstock.common.setting_types import Class, Length, Ports, Size, Text, Truth, Whole

QUERYABLE_STATE = option(
    "queryable-state.enable",
    Truth(),
    "false",
    "Whether states can be read from outside the job. A job that declares a queryable state needs it.",
)
RETAINED_FOR_QUERIES = option(
    "queryable-state.retained-checkpoints",
    Whole(1, 1000),
    "10",
    "Number of checkpoints that a state server keeps readable. Each takes the memory of its changes.",
)
PIN_AGE = option(
    "queryable-state.pin.max-age",
    Length(1),
    "1 min",
    "How long a job keeps the files of a checkpoint for a state server that gives no sign of life.",
)
PIN_CHECKPOINTS = option(
    "queryable-state.pin.max-checkpoints",
    Whole(1),
    "1000",
    "How far a state server can be behind the job before the job removes files that the server has not read.",
)
PROXY_PORTS = option(
    "queryable-state.proxy.ports",
    Ports(),
    "9069",
    "Ports for the proxy of a host, of which the first free one is taken: a port, a range, or a list of both. 0 takes "
    "any free port.",
    aliases=("query.proxy.ports",),
)
SERVER_PORTS = option(
    "queryable-state.server.ports",
    Ports(),
    "9067-9068,9070-9166",
    "Ports for state servers, of which each takes the first free one.",
    aliases=("query.server.ports",),
)
SERVER_BACKEND = optional(
    "queryable-state.server.state-backend",
    Class("memory", "hashmap", "filesystem", "rocksdb", also=BACKEND_ALIASES),
    "the backend of the job, as its checkpoints record it",
    "Where a state server keeps the state that it serves: `memory`, `hashmap` (the same), or on local disk with "
    "`filesystem`, `rocksdb` or `package.module:Factory`. Those on disk use a directory below "
    "`state.backend.local-dir`, and the other `state.backend` settings.",
)
QUERY_ADDRESS = option(
    "queryable-state.bind-address", Text(), "127.0.0.1", "Address that the proxy and state servers listen on."
)
ADVERTISED_ADDRESS = option(
    "queryable-state.advertised-address",
    Text(),
    "",
    "Name or address under which proxies on other hosts reach the state servers of this one. The certificate must be "
    "valid for it.",
    default_text="`queryable-state.bind-address`; the name of the host if that is `0.0.0.0` or `::`",
)
HEARTBEAT_INTERVAL = option(
    "queryable-state.heartbeat.interval",
    Length(1),
    "1 s",
    "How often a state server announces itself to the others of its job. Each time, it writes one file to the "
    "checkpoint storage and reads those of the others.",
)
HEARTBEAT_TIMEOUT = option(
    "queryable-state.heartbeat.timeout",
    Length(1),
    "3 s",
    "Time without an announcement after which the others take the blocks of a state server. Set the same value for all "
    "servers of a job, and at least twice the interval.",
)
PROXY_THREADS = option(
    "queryable-state.proxy.query-threads",
    Whole(0, 10_000),
    "64",
    "Number of requests that a proxy forwards at the same time. More wait for a second, then fail. 0 means the "
    "default, as in Flink.",
    aliases=("query.proxy.query-threads",),
)
SERVER_THREADS = option(
    "queryable-state.server.query-threads",
    Whole(0, 10_000),
    "32",
    "Number of reads that a state server executes at the same time. More wait for a second, then fail. 0 means the "
    "default, as in Flink.",
    aliases=("query.server.query-threads",),
)
QUERY_TOKEN_FILE = option(
    "queryable-state.auth.token-file",
    Text(),
    "",
    "File with the token that requests need, readable by this user only. Created if it does not exist.",
    default_text="`penstock/query-token` below the user's state directory",
)
QUERY_TLS_CERTIFICATE = option(
    "queryable-state.ssl.certificate",
    Text(),
    "",
    "PEM file with the certificate of proxies and state servers. Required beyond this host.",
    default_text="no TLS",
)
QUERY_TLS_KEY = option(
    "queryable-state.ssl.private-key", Text(), "", "PEM file with the private key.", default_text="none"
)
QUERY_TLS_CA = option(
    "queryable-state.ssl.ca",
    Text(),
    "",
    "PEM file with the authorities that a proxy trusts when it talks to state servers.",
    default_text="those of the operating system",
)
MAX_RESULT = option(
    "queryable-state.max-result-size", Size(), "16 mb", "Maximum size of an answer. Scans have no maximum."
)
MAX_REQUEST = option("queryable-state.max-request-size", Size(), "4 mb", "Maximum size of a request.")
SCAN_TIMEOUT = option("queryable-state.scan-timeout", Length(1), "10 min", "Time after which a scan is aborted.")
POLL_INTERVAL = option(
    "queryable-state.poll-interval",
    Length(1),
    "50 ms",
    "How often a state server looks for a new checkpoint. A look is one request to the checkpoint storage.",
)
LINGER = option(
    "queryable-state.linger", Length(), "1 min", "How long a state server answers after the end of its job."
)
