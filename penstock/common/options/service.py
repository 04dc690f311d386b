"""Options for the service: the cluster, its REST interface and high availability."""

from __future__ import annotations

from penstock.common.options.definition import option
from penstock.common.setting_types import Choice, Length, Size, Text, Truth, Whole

SERVICE_PREFIXES = ("rest.", "web.", "cluster.", "high-availability.", "heartbeat.", "jobmanager.")
"""Settings with these prefixes configure the service. They do not concern the jobs."""

CLUSTER_DIRECTORY = option(
    "cluster.dir",
    Text(),
    "",
    "Directory of a Dispatcher on its host: logs, unpacked programs, its token. Accessible to this user only.",
    default_text="`penstock/cluster` below the user's state directory, such as `~/.local/state`",
)
MAX_JOBS = option(
    "cluster.max-jobs", Whole(1), "50", "Maximum number of jobs that run at the same time. More are refused."
)
MAX_STARTS = option(
    "cluster.max-concurrent-starts", Whole(1), "2", "Maximum number of JobManagers that start at the same time."
)
DRIVER_MEMORY = option(
    "jobmanager.memory.heap.size",
    Size(),
    "1 gb",
    "Heap of the JVM of each JobManager, unless the job sets its own.",
    aliases=("jobmanager.heap.size",),
)
DRIVER_MEMORY_OF_SPARK = "spark.driver.memory"


def memory_of_spark(size: int) -> str:
    """Return a number of bytes as Spark's settings spell it."""
    return f"{size >> 20}m"


HISTORY_SIZE = option(
    "web.history",
    Whole(0),
    "100",
    "Maximum number of ended jobs that the service remembers.",
    aliases=("jobmanager.web.history",),
)
HISTORY_AGE = option("cluster.history.max-age", Length(), "7 d", "How long the service remembers an ended job.")
START_TIMEOUT = option(
    "cluster.start-timeout", Length(1), "2 min", "Time for a JobManager to start, after which the attempt is lost."
)
HEARTBEAT_TIMEOUT = option(
    "heartbeat.timeout",
    Length(1),
    "50 s",
    "Time without a sign of life from a JobManager, after which the service kills and restarts it.",
)
LOG_SIZE = option("cluster.log.max-size", Size(), "64 mb", "Size at which a log file of a JobManager is rotated.")
LOG_FILES = option("cluster.log.max-files", Whole(1), "5", "Rotated log files kept for each attempt of a job.")

REST_ADDRESS = option(
    "rest.address",
    Text(),
    "",
    "Host of the service that commands talk to. Setting it makes `penstock run -d`, `list` and the other commands use "
    "that service.",
    default_text="127.0.0.1, once a service runs on this host",
)
REST_PORT = option(
    "rest.port",
    Whole(0, 65535),
    "8081",
    "Port of the REST interface. 0 takes any free port.",
    aliases=("web.port", "jobmanager.web.port"),
)
REST_BIND_ADDRESS = option(
    "rest.bind-address",
    Text(),
    "127.0.0.1",
    "Address that the service listens on.",
    aliases=("web.address", "jobmanager.web.address"),
)
REST_AUTH = option(
    "rest.auth.enabled",
    Truth(),
    "true",
    "`false`: requests need no token. Any local user can then run code as the user of the service.",
)
REST_TOKEN_FILE = option(
    "rest.auth.token-file",
    Text(),
    "",
    "File with the token, readable by this user only. Created if it does not exist.",
    default_text="`token` in `cluster.dir`",
)
REST_ALLOWED_HOSTS = option(
    "rest.allowed-hosts",
    Text(),
    "",
    "Names, separated by commas, under which clients can address the service, apart from its own address.",
    default_text="none",
)
REST_TLS_CERTIFICATE = option(
    "rest.ssl.certificate", Text(), "", "PEM file with the certificate of the service.", default_text="no TLS"
)
REST_TLS_KEY = option("rest.ssl.private-key", Text(), "", "PEM file with the private key.", default_text="none")
REST_TLS_CA = option(
    "rest.ssl.ca",
    Text(),
    "",
    "PEM file with the authorities that commands and other Dispatchers trust when they talk to the service.",
    default_text="those of the operating system",
)
REST_MAX_CONTENT = option(
    "rest.server.max-content-length", Size(), "100 mb", "Maximum size of a request, such as an uploaded program."
)
REST_STORE_DURATION = option(
    "rest.async.store-duration", Length(), "5 min", "How long the result of a savepoint, stop or rescale can be polled."
)
REST_TIMEOUT = option(
    "web.timeout", Length(1), "10 s", "Maximum time that a request waits for a JobManager before it fails."
)
WEB_REFRESH = option(
    "web.refresh-interval",
    Length(1),
    "3 s",
    "How often clients are asked to poll.",
    aliases=("jobmanager.web.refresh-interval",),
)
WEB_SUBMIT = option(
    "web.submit.enable",
    Truth(),
    "true",
    "`false`: REST accepts no programs.",
    aliases=("jobmanager.web.submit.enable",),
)
WEB_CANCEL = option("web.cancel.enable", Truth(), "true", "`false`: REST and the page cancel no jobs.")
WEB_STATE = option("web.state.enable", Truth(), "true", "`false`: REST and the page show no state of jobs.")

HA_TYPE = option(
    "high-availability.type",
    Choice("none", "zookeeper"),
    "none",
    "`zookeeper`: several Dispatchers run, one of them leads, and another takes over when it dies.",
    aliases=("high-availability", "recovery.mode"),
)
HA_STORAGE = option(
    "high-availability.storageDir",
    Text(),
    "",
    "Directory or URI of the records of submitted jobs. All Dispatchers of a cluster need the same one.",
    default_text="`records` in `cluster.dir`",
    aliases=("high-availability.zookeeper.storageDir", "recovery.zookeeper.storageDir"),
)
HA_CLUSTER_ID = option(
    "high-availability.cluster-id",
    Text(),
    "default",
    "Name of the cluster within the storage and ZooKeeper.",
    aliases=("high-availability.zookeeper.path.namespace", "recovery.zookeeper.path.namespace"),
)
HA_QUORUM = option(
    "high-availability.zookeeper.quorum",
    Text(),
    "",
    "ZooKeeper servers: `host:port,host:port,…`",
    default_text="none",
    aliases=("recovery.zookeeper.quorum",),
)
HA_ROOT = option(
    "high-availability.zookeeper.path.root",
    Text(),
    "/penstock",
    "Root node of all clusters in ZooKeeper.",
    aliases=("recovery.zookeeper.path.root",),
)
HA_SESSION_TIMEOUT = option(
    "high-availability.zookeeper.client.session-timeout",
    Length(1),
    "60 s",
    "Time without contact after which ZooKeeper considers a Dispatcher dead.",
    aliases=("recovery.zookeeper.client.session-timeout",),
)
HA_CREDENTIALS = option(
    "high-availability.zookeeper.client.credentials-file",
    Text(),
    "",
    "File with `user:password`, readable by this user only. ZooKeeper then admits only this user to the nodes.",
    default_text="one that is created in `high-availability.storageDir`",
)
