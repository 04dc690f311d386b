"""PostgresSource: every row of an append-only table once, for any overlap of transactions, and the same on replay."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Semaphore

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.servers.postgres import PostgresServer
from penstock.common.row import Row
from penstock.connectors.postgres.settled import Settling
from penstock.connectors.postgres.table import find_table
from penstock.connectors.source import ranges, read_split
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.postgres import PostgresSource
from penstock.errors import PenstockError
from penstock.testing import JobHarness

TABLE = "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, word text, amount numeric(10, 2))"


@pytest.fixture
def db(postgres):
    """A connection in autocommit mode, to a database with an empty table `events`."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def insert(connection, *words):
    for word in words:
        connection.execute("INSERT INTO events (word) VALUES (%s)", [word])


class Reader:
    """Plans and reads epochs like a job."""

    def __init__(self, source, parallelism=1):
        self.source = pickle.loads(pickle.dumps(source))
        self.positions = self.source.start(parallelism)
        self.epochs = []

    def epoch(self, limit=None):
        ahead = self.source.advance(dict(self.positions), limit)
        self.epochs.append(ranges(self.positions, ahead))
        self.positions = ahead
        return self.replay(self.epochs[-1])

    def replay(self, found):
        return [record for part in found for chunk in read_split(self.source, *part) for record in chunk.records]

    def words(self, limit=None):
        return [record["word"] for record in self.epoch(limit)]


@pytest.fixture
def reader(db, postgres):
    made = []

    def make(**options):
        made.append(Reader(PostgresSource(postgres, "events", "id", **options)))
        return made[-1]

    yield make
    for each in made:
        each.source.close()


class TestRows:
    def test_records_are_rows_with_the_column_names(self, db, reader):
        insert(db, "a")
        assert reader().epoch() == [Row(id=1, word="a", amount=None)]

    def test_records_can_be_tuples_of_selected_columns(self, db, reader):
        insert(db, "a", "b")
        assert reader(records="tuple", columns=["word", "id"]).epoch() == [("a", 1), ("b", 2)]

    def test_records_can_be_dicts_without_the_key(self, db, reader):
        insert(db, "a")
        assert reader(records="dict", columns=["word"]).epoch() == [{"word": "a"}]

    def test_values_have_their_python_types(self, db, postgres):
        db.execute(
            """CREATE TYPE mood AS ENUM ('sad', 'glad');
            CREATE TABLE typed (n serial PRIMARY KEY, m mood, j jsonb, a int[], t timestamptz);
            INSERT INTO typed (m, j, a, t) VALUES ('glad', '{"x": [1]}', '{1,2}', '2026-01-01 00:00Z')"""
        )
        reader = Reader(PostgresSource(postgres, "typed", "n", records="tuple"))
        [(n, mood, document, numbers, time)] = reader.epoch()
        assert (n, mood, document, numbers, time.isoformat()) == (1, "glad", {"x": [1]}, [1, 2], time.isoformat())
        assert time.timestamp() == 1767225600
        reader.source.close()

    def test_rows_are_fetched_in_batches(self, db, reader):
        db.execute("INSERT INTO events (word) SELECT 'w' || n FROM generate_series(1, 5001) n")
        assert reader().words() == [f"w{n}" for n in range(1, 5002)]


class TestEpochs:
    def test_epochs_respect_the_limit_despite_gaps_in_the_numbers(self, db, reader):
        insert(db, *"abcdefg")
        db.execute("DELETE FROM events WHERE word IN ('b', 'c')")
        read = reader()
        assert [read.words(2), read.words(2), read.words(2), read.words(2)] == [["a", "d"], ["e", "f"], ["g"], []]

    def test_a_replayed_epoch_has_the_same_rows_although_others_were_added(self, db, reader):
        insert(db, "a", "b")
        read = reader()
        first = read.epoch()
        insert(db, "c")
        read.epoch()
        assert [read.replay(epoch) for epoch in read.epochs] == [first, read.replay(read.epochs[1])]
        assert [record.word for record in first] == ["a", "b"]

    def test_another_process_resumes_from_a_position(self, db, reader):
        insert(db, "a")
        read = reader()
        read.epoch()
        insert(db, "b")
        read.source = pickle.loads(pickle.dumps(read.source))
        assert read.words() == ["b"]
        read.source.close()

    def test_several_splits_share_the_rows(self, db, reader):
        insert(db, *"abcdefg")
        read = reader(splits=3)
        assert sorted(read.words(5)) == list("abcde")
        assert [part.split for part in read.epochs[0]] == ["0/3", "1/3", "2/3"]
        assert sorted(read.words(5)) == ["f", "g"]

    def test_splits_stay_the_same_if_the_program_changes_them(self, db, reader, postgres):
        insert(db, *"abc")
        read = reader(splits=2)
        read.epoch()
        read.source.close()
        read.source = PostgresSource(postgres, "events", "id", splits=3)
        insert(db, *"defg")
        assert sorted(read.words()) == list("defg")

    def test_nothing_is_read_without_new_rows(self, db, reader):
        read = reader()
        read.epoch()
        assert read.epochs == [[]]
        insert(db, "a")
        assert read.words() == ["a"]
        db.execute("DELETE FROM events")
        read.epoch()
        assert read.epochs[-1] == []


class TestTransactionsThatCommitOutOfOrder:
    def test_rows_committed_out_of_order_are_all_read(self, db, reader, postgres):
        read = reader()
        with psycopg.connect(postgres) as slow:
            insert(slow, "slow")
            insert(db, "fast")
            # A source that went by the largest number would skip the first row permanently.
            assert read.words() == []
            slow.commit()
            assert read.words() == ["slow", "fast"]

    def test_a_slow_transaction_delays_earlier_rows_only_once(self, db, reader, postgres):
        """Rows that existed when the slow transaction began wait for it, but not for transactions that began later."""
        read = reader()
        with psycopg.connect(postgres) as slow, psycopg.connect(postgres) as later:
            insert(db, "a")
            insert(slow, "slow")
            assert read.words() == []
            insert(later, "later")
            slow.commit()
            assert read.words() == ["a"]
            later.commit()
            assert read.words() == ["slow", "later"]

    def test_a_rolled_back_transaction_leaves_only_a_gap(self, db, reader, postgres):
        read = reader()
        with psycopg.connect(postgres) as slow:
            insert(slow, "never")
            insert(db, "a")
            assert read.words() == []
            slow.rollback()
        assert read.words() == ["a"]

    def test_a_prepared_transaction_is_waited_for(self, db, reader, postgres):
        read = reader()
        with psycopg.connect(postgres) as slow:
            insert(slow, "slow")
            insert(db, "a")
            assert read.words() == []
            slow.execute("PREPARE TRANSACTION 'in doubt'")
            assert [read.words(), read.words()] == [[], []]
            db.execute("COMMIT PREPARED 'in doubt'")
        assert read.words() == ["slow", "a"]

    def test_a_transaction_on_a_partition_is_waited_for(self, db, postgres):
        db.execute(
            """CREATE TABLE parts (id bigint GENERATED ALWAYS AS IDENTITY, day int, PRIMARY KEY (id, day))
               PARTITION BY LIST (day);
               CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
               CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)"""
        )
        read = Reader(PostgresSource(postgres, "parts", "id", columns=["day"], records="tuple"))
        with psycopg.connect(postgres) as slow:
            slow.execute("INSERT INTO parts (day) VALUES (1)")
            db.execute("INSERT INTO parts (day) VALUES (2)")
            assert read.epoch() == []
        assert read.epoch() == [(1,), (2,)]
        read.source.close()

    def test_transactions_that_do_not_write_to_the_table_are_ignored(self, db, reader, postgres):
        db.execute("CREATE TABLE elsewhere (n int)")
        insert(db, "a")
        with psycopg.connect(postgres) as other:
            other.execute("INSERT INTO elsewhere VALUES (1)")
            other.execute("SELECT * FROM events FOR SHARE")
            assert reader().words() == ["a"]


class Interrupted:
    """A connection that runs a step of other sessions after its first query."""

    def __init__(self, connection, step):
        self.connection, self.step = connection, step

    def execute(self, *query):
        found = self.connection.execute(*query)
        step, self.step = self.step, lambda: None
        step()
        return found


def test_concurrent_writes_between_two_queries_are_not_missed(db, postgres):
    insert(db, "before")
    with psycopg.connect(postgres) as slow:

        def others():
            insert(slow, "slow")
            insert(db, "fast")

        settling = Settling(find_table(db, "events", "test", "here"), "id")
        assert settling.look(Interrupted(db, others)) != 3
    assert settling.look(db) == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["insert", "insert", "insert", "commit", "commit"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["rollback", "prepare", "finish"]), st.integers(0, 3)),
        st.tuples(st.just("epoch"), st.sampled_from([None, None, 1, 2])),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    min_size=8,
    max_size=40,
)


class Writers:
    """Four sessions, each with an optional open transaction, and the undecided prepared transactions."""

    def __init__(self, conninfo):
        self.sessions = [psycopg.connect(conninfo) for _ in range(4)]
        self.admin = psycopg.connect(conninfo, autocommit=True)
        self.written = 0
        self.open = [[] for _ in self.sessions]
        self.prepared = {}
        self.committed = []

    def begin(self):
        self.admin.execute("TRUNCATE events RESTART IDENTITY")
        self.written = 0
        self.committed = []

    def insert(self, number):
        insert(self.sessions[number], str(self.written))
        self.open[number].append(str(self.written))
        self.written += 1

    def commit(self, number):
        self.sessions[number].commit()
        self.committed += self.open[number]
        self.open[number] = []

    def rollback(self, number):
        self.sessions[number].rollback()
        self.open[number] = []

    def prepare(self, number):
        if number not in self.prepared and self.open[number]:
            self.sessions[number].execute(f"PREPARE TRANSACTION 'number {number}'")
            self.sessions[number].rollback()
            self.prepared[number], self.open[number] = self.open[number], []

    def finish(self, number):
        if number in self.prepared:
            self.admin.execute(f"COMMIT PREPARED 'number {number}'")
            self.committed += self.prepared.pop(number)

    def end(self):
        for number in range(4):
            self.finish(number)
            self.commit(number)

    def close(self):
        for connection in [*self.sessions, self.admin]:
            connection.close()


@pytest.fixture
def writers(db, postgres):
    made = Writers(postgres)
    yield made
    made.close()


def test_every_committed_row_is_read_once_in_order_for_any_interleaving(writers, reader, postgres):
    @settings(max_examples=150)
    @given(STEPS)
    def run(steps):
        writers.begin()
        read = reader()
        words = []
        try:
            for step, detail in steps:
                if step == "epoch":
                    words += read.words(detail)
                elif step == "forget":
                    # A planner that dies leaves only its positions.
                    read.source.close()
                    read.source = pickle.loads(pickle.dumps(read.source))
                else:
                    getattr(writers, step)(detail)
            writers.end()
            while more := read.words():
                words += more
            words += read.words()
            assert words == sorted(writers.committed, key=int)
            assert [row.word for epoch in read.epochs for row in read.replay(epoch)] == words
        finally:
            writers.end()
            read.source.close()

    run()


def test_every_row_is_read_once_while_threads_write(db, reader, postgres):
    def write(number):
        random = Random(number)
        with psycopg.connect(postgres) as session:
            for place in range(150):
                if place % 10 == 0:
                    # Leave room for epochs in between.
                    turns.acquire()
                for part in range(random.randrange(1, 4)):
                    insert(session, f"{number}.{place}.{part}")
                if random.random() < 0.1:
                    session.rollback()
                else:
                    session.commit()

    read = reader()
    words = []
    turns = Semaphore(4)
    with ThreadPoolExecutor(4) as writers:
        running = [writers.submit(write, number) for number in range(4)]
        while not all(each.done() for each in running):
            words += read.words()
            turns.release(4)
        for each in running:
            each.result()
    while more := read.words():
        words += more
    assert words == [word for (word,) in db.execute("SELECT word FROM events ORDER BY id")]


class TestABoundedSource:
    def test_a_bounded_source_reads_the_rows_that_exist_at_its_start(self, db, reader):
        insert(db, "a", "b")
        read = reader(bounded=True)
        insert(db, "c")
        assert [read.words(1), read.words(1), read.words(1)] == [["a"], ["b"], []]
        assert read.source.ends("0/1", read.positions["0/1"])

    def test_a_bounded_source_waits_for_open_transactions_and_names_them(self, db, postgres):
        source = PostgresSource(postgres, "events", "id", bounded=True, retry_seconds=0)
        with psycopg.connect(postgres) as slow:
            insert(slow, "slow")
            insert(db, "a")
            with pytest.raises(PenstockError, match=r"table 'events' .* open transactions .* for 0 s: \d+/\d+"):
                source.start(1)
        assert source.start(1) == {"0/1": [None, 2]}
        source.close()

    def test_a_bounded_source_of_an_empty_table_ends_immediately(self, reader):
        read = reader(bounded=True)
        assert read.epoch() == []
        assert read.epochs == [[]]


class TestWhatWaits:
    def test_the_backlog_counts_numbers(self, db, reader):
        read = reader()
        assert read.source.backlog(read.positions) == 0
        insert(db, *"abcde")
        assert read.source.backlog(read.positions) == 5
        read.words(2)
        assert read.source.backlog(read.positions) == 3
        read.words()
        assert read.source.backlog(read.positions) == 0

    def test_the_backlog_of_a_bounded_source_ends_at_its_goal(self, db, reader):
        insert(db, "a", "b")
        read = reader(bounded=True)
        insert(db, "c")
        assert read.source.backlog(read.positions) == 2


@pytest.fixture
def own_server():
    server = PostgresServer().start()
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute(TABLE)
    yield server
    server.close()


class TestAServerThatDies:
    def test_a_read_continues_after_a_server_restart(self, own_server):
        with psycopg.connect(own_server.conninfo(), autocommit=True) as db:
            db.execute("INSERT INTO events (word) SELECT 'w' || n FROM generate_series(1, 5000) n")
        read = Reader(PostgresSource(own_server.conninfo(), "events", "id"))
        ahead = read.source.advance(read.positions, None)
        rows = iter(read.source.read("0/1", None, ahead["0/1"]))
        words = [next(rows).word]
        own_server.kill()
        own_server.start()
        assert words + [row.word for row in rows] == [f"w{n}" for n in range(1, 5001)]
        read.source.close()

    def test_a_prepared_transaction_is_waited_for_after_a_server_restart(self, own_server):
        read = Reader(PostgresSource(own_server.conninfo(), "events", "id"))
        with psycopg.connect(own_server.conninfo()) as slow:
            insert(slow, "slow")
            with psycopg.connect(own_server.conninfo(), autocommit=True) as db:
                insert(db, "fast")
            assert read.words() == []
            slow.execute("PREPARE TRANSACTION 'in doubt'")
        own_server.stop()
        own_server.start()
        assert [read.words(), read.words()] == [[], []]
        with psycopg.connect(own_server.conninfo(), autocommit=True) as db:
            db.execute("COMMIT PREPARED 'in doubt'")
        assert read.words() == ["slow", "fast"]
        read.source.close()

    def test_an_unavailable_server_is_reported_with_a_fix(self, own_server):
        source = PostgresSource(own_server.conninfo("shop"), "events", "id", retry_seconds=0)
        own_server.stop()
        with pytest.raises(PenstockError, match="database 'shop' was unavailable for 0 s") as caught:
            source.advance(source.start(1), None)
        assert "Start the server" in caught.value.fix


class TestAJob:
    def test_a_job_counts_rows_once_after_crashes(self, db, postgres):
        insert(db, *"abacad")
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_source(PostgresSource(postgres, "events", "id", bounded=True), source_name="events")
        with JobHarness(stream.key_by(lambda row: row.word).map(lambda row: row.word)) as job:
            job.epoch(2)
            job.crash_at("level1.processed")
            job.epoch(2)
            job.crash()
            assert sorted(job.run(2)) == sorted("abacad")
