"""Lines from a socket: in order, to the end of the connection, and the same ones when an epoch is planned again."""

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
    """Listens on loopback; `connection` is what a source has opened."""

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
    """A source in the place where it is planned, with positions as they are logged."""

    def __init__(self, source, positions=None):
        self.source = pickle.loads(pickle.dumps(source))
        self.positions = positions or json.loads(json.dumps(self.source.start(2)))

    def plan(self, limit=None):
        return json.loads(json.dumps(self.source.advance(self.positions, limit)))

    def next(self, limit=None):
        """The lines of the next epoch; waits for the first."""
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
    def test_come_in_order_and_whole_however_they_are_sent(self, sender, planner):
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

    def test_that_are_no_text_have_signs_in_their_place(self, sender, planner):
        sender.send(b"a\xff\n")
        assert planner.next() == ["a\ufffd"]

    def test_of_an_epoch_are_at_most_the_limit(self, sender, planner):
        sender.send(b"1\n2\n3\n4\n5\n")
        sender.hang_up()
        assert [planner.next(2), planner.next(2), planner.next(2)] == [["1", "2"], ["3", "4"], ["5"]]
        if not planner.ended:
            assert planner.next(2) == []
        assert planner.ended

    def test_of_an_epoch_are_few_where_they_are_long(self, sender, planner, monkeypatch):
        monkeypatch.setattr(socket_text, "_EPOCH_BYTES", 100)
        lines = [f"{n:040d}" for n in range(200)]
        sender.send("\n".join(lines).encode())
        sender.hang_up()
        epochs = []
        while not planner.ended:
            epochs.append(planner.next())
        assert [line for epoch in epochs for line in epoch] == lines
        assert max(map(len, epochs)) == 3

    def test_that_were_planned_and_not_logged_are_planned_again(self, sender, planner):
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

    def test_may_end_in_another_delimiter(self, sender):
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, delimiter="--"))
        planner.plan()
        sender.send(b"a\r--b\n-")
        sender.send(b"-c")
        sender.hang_up()
        seen = []
        while not planner.ended:
            seen += planner.next()
        assert seen == ["a\r", "b\n", "c"]

    def test_without_a_delimiter_are_refused_before_they_fill_the_memory(self, sender, planner, monkeypatch):
        monkeypatch.setattr(socket_text, "_LINE_BYTES", 1000)
        sender.send(b"x" * 2000)
        with pytest.raises(SocketFailed, match=r"sent 2,000 bytes without the delimiter '\\n'"):
            planner.next()


class TestAConnection:
    def test_that_nobody_takes_is_an_error_with_the_address(self, sender):
        sender.close()
        planner = Planner(SocketTextSource("127.0.0.1", sender.port))
        with pytest.raises(SocketFailed, match=rf"Nobody can be reached at 127.0.0.1:{sender.port}.*max_retry=60"):
            planner.plan()

    def test_that_ends_is_made_again_when_asked(self, sender, monkeypatch):
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

    def test_that_ends_and_cannot_be_made_again_is_the_end(self, sender, monkeypatch):
        monkeypatch.setattr(socket_text, "_RETRY_S", 0)
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, max_retry=2))
        planner.plan()
        sender.send(b"1\n")
        assert planner.next() == ["1"]
        sender.close()
        assert planner.next() == []
        assert planner.ended

    def test_that_was_never_made_is_tried_as_often_as_was_asked(self, sender, monkeypatch):
        monkeypatch.setattr(socket_text, "_RETRY_S", 0)
        planner = Planner(SocketTextSource("127.0.0.1", sender.port, max_retry=3))
        sender.close()
        for _ in range(3):
            assert planner.plan() == planner.positions
        with pytest.raises(SocketFailed, match="Nobody can be reached"):
            planner.plan()

    def test_of_another_planner_begins_with_what_is_sent_to_it(self, sender, planner):
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

    def test_to_another_address_than_before_begins_anew(self, sender):
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
            (("", 1), "needs the name of a host"),
            (("h", 0), "a port is a whole number from 1 to 65535, not 0"),
            (("h", "80"), "not '80'"),
            (("h", 80, ""), "text of at least one sign"),
            (("h", 80, "\n", 0.5), "max_retry is a whole number of seconds"),
        ],
    )
    def test_that_cannot_be_is_refused_at_once(self, arguments, message):
        with pytest.raises(PenstockError, match=message):
            SocketTextSource(*arguments)


def words(sender):
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.socket_text_stream("127.0.0.1", sender.port)
    return lines.flat_map(str.split).map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1)


class TestAJob:
    def test_ends_when_the_connection_does(self, sender):
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

    def test_that_crashes_in_one_life_of_its_planner_loses_nothing(self, sender):
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

    def test_says_that_lines_may_be_lost(self, sender, caplog):
        env = words(sender).get_execution_environment()
        told = guarantee_of("words", env._graph, env._physical(), env._configuration)
        [source] = told.sources
        assert not source.replayable
        assert "gives its lines once" in source.why
        with caplog.at_level(logging.WARNING, "penstock"):
            log_guarantee(told)
        assert "gives its lines once" in caplog.text
