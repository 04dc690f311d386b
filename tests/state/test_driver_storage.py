"""Behaviour specific to storage in the driver's memory."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.state import serving
from penstock.state.driver_storage import DriverStorage, RemoteDriverStorage
from penstock.state.storage import MissingObject, StorageError, StorageUnreachable
from penstock.state.storage_uri import open_storage

fork = multiprocessing.get_context("fork")


@pytest.fixture
def driver() -> Iterator[DriverStorage]:
    driver = DriverStorage()
    yield driver
    driver.close()


def listening_ports() -> set[str]:
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    inodes = {fields[9]: fields[1] for line in lines if (fields := line.split())[3] == "0A"}
    ours = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if os.path.exists(link)}
    return {address for inode, address in inodes.items() if f"socket:[{inode}]" in ours}


def secret_of(driver: DriverStorage) -> str:
    return urlsplit(driver.uri).path[1:]


def address_of(driver: DriverStorage) -> tuple[str, int]:
    parts = urlsplit(driver.uri)
    return parts.hostname or "", parts.port or 0


class TestDriverStorage:
    def test_the_driver_does_not_listen_until_its_uri_is_used(self) -> None:
        before = listening_ports()
        driver = DriverStorage()
        driver.publish("a", b"1")
        assert listening_ports() == before
        uri = driver.uri
        (new,) = listening_ports() - before
        assert new.startswith("0100007F:")  # 127.0.0.1
        assert driver.uri == uri
        driver.close()
        assert listening_ports() == before

    def test_tasks_read_the_current_objects_of_the_driver(self, driver: DriverStorage) -> None:
        task = open_storage(driver.uri)
        driver.write("a", b"1")
        assert task.read("a") == b"1"
        driver.delete("a")
        with pytest.raises(MissingObject, match=r"driver at 127\.0\.0\.1"):
            task.read("a")
        driver.write("é", b"2")
        assert task.read("é") == b"2"

    def test_tasks_can_only_read(self, driver: DriverStorage) -> None:
        task = open_storage(driver.uri)
        calls = [task.exists, task.list, task.delete]
        calls += [lambda name: task.write(name, b""), lambda name: task.publish(name, b"")]
        for call in calls:
            with pytest.raises(StorageError, match="only read"):
                call("a")

    def test_a_client_with_a_wrong_secret_is_rejected(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        for wrong in ("wrong", secret_of(driver)[:-1], secret_of(driver) + "x"):
            task = open_storage(driver.uri.replace(secret_of(driver), wrong))
            with pytest.raises(StorageUnreachable, match="rejected") as refusal:
                task.read("a")
            assert wrong not in str(refusal.value)
        assert open_storage(driver.uri).read("a") == b"1"

    def test_a_client_that_does_not_send_the_secret_first_gets_nothing(self, driver: DriverStorage) -> None:
        driver.write("a", b"private")
        length = struct.Struct(">Q")
        requests = [length.pack(1) + b"a", b"GET / HTTP/1.1\r\n\r\n", length.pack(2**40) + b"x" * 100, b""]
        for request in requests:
            with socket.create_connection(address_of(driver), timeout=10) as stranger:
                stranger.sendall(request)
                stranger.shutdown(socket.SHUT_WR)
                try:
                    assert stranger.recv(100) in (b"\0", b"")
                except ConnectionResetError:
                    pass
        assert open_storage(driver.uri).read("a") == b"private"

    def test_a_silent_unauthenticated_client_is_disconnected(
        self, driver: DriverStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serving, "_SECRET_SECONDS", 0.1)
        with socket.create_connection(address_of(driver), timeout=10) as stranger:
            assert stranger.recv(1) == b""

    def test_the_secret_never_appears_in_messages(self, driver: DriverStorage) -> None:
        secret = secret_of(driver)
        task = open_storage(driver.uri)
        shown = [repr(driver), str(driver), repr(task), str(task)]
        driver.close()
        for call in (
            lambda: task.read("a"),
            lambda: task.write("a", b""),
            lambda: driver.uri,
            lambda: open_storage(f"drivr://host:1/{secret}").read("a"),
            lambda: open_storage(f"driver://host/{secret}"),
            lambda: open_storage(f"driver://host:port/{secret}"),
            lambda: RemoteDriverStorage(f"http://host:1/{secret}"),
        ):
            with pytest.raises(StorageError) as error:
                call()
            shown += [str(error.value), repr(error.value), str(error.value.__cause__), str(error.value.__context__)]
        assert not any(secret in text for text in shown)

    def test_a_process_uses_one_connection_and_reconnects_when_it_breaks(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        for _ in range(3):
            assert open_storage(driver.uri).read("a") == b"1"
        (connection,) = driver._server._connections
        connection.shutdown(socket.SHUT_RDWR)
        assert open_storage(driver.uri).read("a") == b"1"

    def test_a_forked_child_opens_its_own_connection(self, driver: DriverStorage) -> None:
        for number in range(200):
            driver.write(str(number), b"%d" % number * 1000)
        task = open_storage(driver.uri)

        def read_all() -> None:
            for number in range(200):
                assert task.read(str(number)) == b"%d" % number * 1000

        task.read("0")
        processes = [fork.Process(target=read_all) for _ in range(3)]
        for process in processes:
            process.start()
        read_all()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]

    def test_threads_share_a_connection(self, driver: DriverStorage) -> None:
        for number in range(50):
            driver.write(str(number), b"%d" % number * 10_000)
        task = open_storage(driver.uri)
        wrong: list[int] = []

        def read_all() -> None:
            wrong.extend(n for n in range(50) if task.read(str(n)) != b"%d" % n * 10_000)

        threads = [threading.Thread(target=read_all) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(driver._server._connections) == 1

    def test_the_error_names_a_driver_that_has_stopped(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        task = open_storage(driver.uri)
        assert task.read("a") == b"1"
        host, port = address_of(driver)
        driver.close()
        driver.close()
        with pytest.raises(StorageUnreachable, match=f"{host}:{port}"):
            task.read("a")
        assert driver.read("a") == b"1"

    def test_listening_on_a_foreign_host_raises_an_error(self) -> None:
        with pytest.raises(StorageError, match="executors reach the driver"):
            _ = DriverStorage(host="192.0.2.1").uri
