"""Lines from a socket: in order, until the connection ends, and the same ones if an epoch is replanned."""

import json
import logging
import pickle
import socket
import threading
from contextlib import closing

import pytest

from penstock.connectors import socket_text
from penstock.connectors.socket_text import SocketFailed, SocketTextSource
from penstock.connectors.source import ranges, read_split
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.guarantees import guarantee_of, log_guarantee
from penstock.errors import PenstockError
from penstock.testing import JobHarness


class Sender:
    """Listens on loopback; `connection` is the one that a source has opened."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._connection = None

    @property
    def connection(self):
        if self._connection is None:
            self._connection = self.listener.accept()[0]
        return self._connection

    def send(self, data):
        self.connection.sendall(data)

    def hang_up(self):
        self.connection.close()
        self._connection = None

    def close(self):
        if self._connection is not None:
            self._connection.close()
        self.listener.close()


@pytest.fixture
def sender():
    with closing(Sender()) as sender:
        yield sender


class Planner:
    """Uses a source like the planner, with positions as JSON."""

    def __init__(self, source, positions=None):
        self.source = pickle.loads(pickle.dumps(source))
        self.positions = positions or json.loads(json.dumps(self.source.start(2)))

    def plan(self, limit=None):
        return json.loads(json.dumps(self.source.advance(self.positions, limit)))

    def next(self, limit=None):
        """Return the lines of the next epoch; waits for the first one."""
        while (ahead := self.plan(limit)) == self.positions:
            pass
        planned, self.positions = ranges(self.positions, ahead), ahead
        return [line for part in planned for chunk in read_split(self.source, *part) for line in chunk.records]

    @property
    def ended(self):
        return all(self.source.ends(split, at) for split, at in self.positions.items())


@pytest.fixture
def planner(sender):
    with closing(SocketTextSource("127.0.0.1", sender.port)) as source:
        planner = Planner(source)
        assert planner.plan() == planner.positions
        yield planner
        planner.source.close()


class TestLines:
    def test_lines_arrive_complete_and_in_order_however_they_are_sent(self, sender, planner):
        sender.send(b"one\ntw")
        assert planner.next() == ["one"]
        sender.send("o\r\n\ndreißig".encode()[:-2])
        assert planner.next() == ["two", ""]
        sender.send(b"ig\nrest")
        assert planner.next() == ["dreißig"]
        sender.hang_up()
        assert planner.next() == ["rest"]
        assert planner.ended
        assert planner.plan() == planner.positions

    def test_invalid_bytes_are_replaced(self, sender, planner):
        sender.send(b"a\xff\n")
        assert planner.next() == ["a\ufffd"]

    def test_an_epoch_respects_the_limit(self, sender, planner):
        sender.send(b"1\n2\n3\n4\n5\n")
        sender.hang_up()
        assert [planner.next(2), planner.next(2), planner.next(2)] == [["1", "2"], ["3", "4"], ["5"]]
        if not planner.ended:
            assert planner.next(2) == []
        assert planner.ended

    def test_an_epoch_of_long_lines_has_few_of_them(self, sender, planner, monkeypatch):
        monkeypatch.setattr(socket_text, "_EPOCH_BYTES", 100)
        lines = [f"{n:040d}" for n in range(200)]
        sender.send("\n".join(lines).encode())
        sender.hang_up()
        epochs = []
        while not planner.ended:
            epochs.append(planner.next())
        assert [line for epoch in epochs for line in epoch] == lines
        assert max(map(len, epochs)) == 3

    def test_planned_lines_that_were_not_logged_are_planned_again(self, sender, planner):
        sender.send(b"1\n2\n")
        while (first := planner.plan()) == planner.positions:
            pass
        sender.send(b"3\n")
        sender.hang_up()
        assert first[f"127.0.0.1:{sender.port}"]["lines"][0] == "1"
        seen = []
        while not planner.ended:
            seen += planner.next()
        assert seen == ["1", "2", "3"]

    def test_lines_can_have_another_delimiter(self, sender):
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, delimiter="--"))
        planner.plan()
        sender.send(b"a\r--b\n-")
        sender.send(b"-c")
        sender.hang_up()
        seen = []
        while not planner.ended:
            seen += planner.next()
        assert seen == ["a\r", "b\n", "c"]

    def test_data_without_a_delimiter_is_rejected_before_it_fills_memory(self, sender, planner, monkeypatch):
        monkeypatch.setattr(socket_text, "_LINE_BYTES", 1000)
        sender.send(b"x" * 2000)
        with pytest.raises(SocketFailed, match=r"sent 2,000 bytes without the delimiter '\\n'"):
            planner.next()


class TestAConnection:
    def test_a_refused_connection_is_an_error_with_the_address(self, sender):
        sender.close()
        planner = Planner(SocketTextSource("127.0.0.1", sender.port))
        with pytest.raises(SocketFailed, match=rf"Cannot connect to 127.0.0.1:{sender.port}.*max_retry=60"):
            planner.plan()

    def test_a_closed_connection_is_reopened_if_configured(self, sender, monkeypatch):
        monkeypatch.setattr(socket_text, "_RETRY_S", 0)
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, max_retry=-1))
        planner.plan()
        sender.send(b"1\nhalf")
        assert planner.next() == ["1"]
        sender.hang_up()
        assert planner.next() == ["half"]
        sender.send(b"2\n")
        assert planner.next() == ["2"]
        assert not planner.ended
        planner.source.close()

    def test_a_connection_that_cannot_be_reopened_ends_the_source(self, sender, monkeypatch):
        monkeypatch.setattr(socket_text, "_RETRY_S", 0)
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, max_retry=2))
        planner.plan()
        sender.send(b"1\n")
        assert planner.next() == ["1"]
        sender.close()
        assert planner.next() == []
        assert planner.ended

    def test_a_first_connection_is_retried_as_configured(self, sender, monkeypatch):
        monkeypatch.setattr(socket_text, "_RETRY_S", 0)
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, max_retry=3))
        sender.close()
        for _ in range(3):
            assert planner.plan() == planner.positions
        with pytest.raises(SocketFailed, match="Cannot connect"):
            planner.plan()

    def test_another_planner_continues_with_newly_sent_lines(self, sender, planner):
        sender.send(b"1\n")
        assert planner.next() == ["1"]
        sender.send(b"lost\n")
        planner.source.close()
        sender.hang_up()
        other = Planner(SocketTextSource("127.0.0.1", sender.port), planner.positions)
        other.plan()
        sender.send(b"2\n")
        assert other.next() == ["2"]
        assert other.positions[f"127.0.0.1:{sender.port}"]["line"] == 2
        other.source.close()

    def test_a_changed_address_starts_over(self, sender):
        before = {"elsewhere:1": {"line": 7, "lines": ["x"], "ended": False}}
        planner = Planner(SocketTextSource("127.0.0.1", sender.port), before)
        planner.plan()
        sender.send(b"1\n")
        sender.hang_up()
        assert planner.next() == ["1"]
        if not planner.ended:
            planner.next()
        assert planner.ended

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("", 1), "needs a host name"),
            (("h", 0), "port must be an int from 1 to 65535, not 0"),
            (("h", "80"), "not '80'"),
            (("h", 80, ""), "delimiter must be a non-empty string"),
            (("h", 80, "\n", 0.5), "max_retry must be an int"),
        ],
    )
    def test_invalid_arguments_are_rejected_immediately(self, arguments, message):
        with pytest.raises(PenstockError, match=message):
            SocketTextSource(*arguments)


def words(sender):
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.socket_text_stream("127.0.0.1", sender.port)
    return lines.flat_map(str.split).map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1)


class TestAJob:
    def test_a_job_ends_with_its_connection(self, sender):
        def send():
            sender.send(b"to be or\nnot to be")
            sender.hang_up()

        thread = threading.Thread(target=send)
        thread.start()
        with JobHarness(words(sender), parallelism=2) as job:
            job.run()
        thread.join()
        assert sorted(job.output)[:2] == [("be", 1), ("be", 2)]
        assert len(job.output) == 6

    def test_a_crash_that_the_planner_survives_loses_nothing(self, sender):
        def send():
            sender.send(b"to be or\nnot to be")
            sender.hang_up()

        thread = threading.Thread(target=send)
        thread.start()
        with JobHarness(words(sender)) as job:
            while not job._feed.anything_waits(None):
                pass
            job.crash_at("driver.collected")
            job.epoch()
            job.run()
        thread.join()
        assert sorted(job.output)[:2] == [("be", 1), ("be", 2)]
        assert len(job.output) == 6

    def test_a_job_warns_that_lines_can_be_lost(self, sender, caplog):
        env = words(sender).get_execution_environment()
        guarantee = guarantee_of("words", env._graph, env._physical(), env._configuration)
        [source] = guarantee.sources
        assert not source.replayable
        assert "sends each line once" in source.why
        with caplog.at_level(logging.WARNING, "penstock"):
            log_guarantee(guarantee)
        assert "sends each line once" in caplog.text
