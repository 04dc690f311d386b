"""Transactional offsets, which the mock brokers lack: they are committed to their group with the transaction.

A relay in front of the broker inspects the requests of clients and keeps the offsets of each transactional id. It
commits them to their group when the transaction commits, and discards them when it aborts.
"""

import socket
import struct
import threading
from contextlib import suppress

import confluent_kafka

_TXN_OFFSET_COMMIT, _END_TXN = 28, 26


class Relay:
    """Accepts clients at `port`, and opens a connection to the broker at `address` for each."""

    def __init__(self, address):
        self._address = address
        self._offsets = {}
        self._consumers = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        _start(self._accept)

    def close(self):
        for consumer in self._consumers.values():
            consumer.close()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._address)
            _start(self._requests, client, broker)
            _start(_copy, broker, client)

    def _requests(self, client, broker):
        # A client can close its connection at any time.
        with broker, client, suppress(ConnectionError):
            stream = client.makefile("rb")
            while len(size := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">i", size)[0])
                self._look(_Fields(request))
                broker.sendall(size + request)

    def _look(self, fields):
        kind, version = fields.number(2), fields.number(2)
        if kind not in (_TXN_OFFSET_COMMIT, _END_TXN):
            return
        fields.number(4)
        fields.text()
        if kind == _END_TXN:
            assert version < 3, "from version 3 on, strings are compact"
            self._end(fields.text(), committed=fields.skip(8 + 2).number(1))
            return
        assert version == 3
        transaction, group = fields.skip(1).compact_text(), fields.compact_text()
        fields.skip(8 + 2 + 4).compact_text()
        fields.compact_text()
        # One topic and one partition: compact lengths are one higher.
        assert fields.number(1) == 2
        topic = fields.compact_text()
        assert fields.number(1) == 2
        partition, offset = fields.number(4), fields.number(8)
        # confluent-kafka also sends the terminating NUL of a string.
        metadata = fields.skip(4).compact_text().rstrip("\0")
        entry = confluent_kafka.TopicPartition(topic, partition, offset, metadata)
        self._offsets[transaction] = group, entry

    def _end(self, transaction, committed):
        group, entry = self._offsets.pop(transaction, (None, None))
        if entry is not None and committed:
            if group not in self._consumers:
                settings = {"bootstrap.servers": f"127.0.0.1:{self.port}", "group.id": group}
                self._consumers[group] = confluent_kafka.Consumer(settings)
            self._consumers[group].commit(offsets=[entry], asynchronous=False)


class _Fields:
    """Reads the fields of a request in sequence."""

    def __init__(self, data):
        self._data = data
        self._place = 0

    def number(self, size):
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self):
        return self._take(max(0, self.number(2))).decode()

    def compact_text(self):
        """Return a string with a one-byte length, plus one: the strings in tests are short."""
        length = self.number(1)
        assert length >= 0
        return self._take(max(0, length - 1)).decode()

    def skip(self, size):
        self._take(size)
        return self

    def _take(self, size):
        self._place += size
        return self._data[self._place - size : self._place]


def _copy(source, target):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def _start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
