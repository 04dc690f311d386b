"""PostgresSink: every record is in the table once, whatever crashes around the commit."""

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.servers.postgres import PostgresServer
from penstock.common.row import Row
from penstock.common.typeinfo import Types
from penstock.connectors.postgres import ledger
from penstock.connectors.postgres import sink as postgres_sink
from penstock.connectors.postgres.encoding import FORMAT, RowEncoder, record_at
from penstock.connectors.postgres.target import find_target
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.errors import PenstockError
from penstock.testing import JobHarness

POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


@pytest.fixture
def db(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE numbers (n int, word text)")
        connection.execute("CREATE TABLE totals (word text PRIMARY KEY, total int)")
        yield connection


def rows(db, table="numbers", columns="n"):
    return sorted(row if "," in columns else row[0] for row in db.execute(f"SELECT {columns} FROM {table}"))


def job(sink, records=range(40), **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(list(records)).uid("numbers").rebalance()
    stream.map(lambda n: (n, f"word {n}") if isinstance(n, int) else n).sink_to(sink).uid("out")
    return JobHarness(env, **options)


class TestAJobThatCrashes:
    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize(("backend", "late"), [("memory", False), ("filesystem", False), ("filesystem", True)])
    def test_every_record_is_written_once_after_a_crash_at_any_point(self, db, postgres, point, backend, late):
        sink = PostgresSink(postgres, "numbers")
        with job(sink, parallelism=3, backend=backend, commits_late=late) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.crash()
            harness.run(10)
        assert rows(db) == list(range(40))

    @pytest.mark.parametrize("point", POINTS)
    def test_each_key_has_its_last_value_after_a_crash_at_any_point(self, db, postgres, point):
        records = [(f"word {n % 7}", n) for n in range(40)]
        with job(PostgresSink(postgres, "totals", key="word"), records) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert rows(db, "totals", "word, total") == sorted(dict(records).items())

    def test_the_ledger_has_one_row_for_any_number_of_epochs(self, db, postgres):
        with job(PostgresSink(postgres, "numbers")) as harness:
            harness.run(5)
            [(sink, epoch, target)] = db.execute("SELECT sink, epoch, target FROM penstock_ledger").fetchall()
            # The last epoch only ends the input.
            assert (sink, epoch, target) == ("out", 8, "public.numbers")
            assert harness.checkpoint == 9


class TestAnotherLineage:
    def test_a_job_that_starts_over_writes_its_epochs_again(self, db, postgres):
        for _ in range(2):
            with job(PostgresSink(postgres, "numbers"), range(4)) as harness:
                harness.run(2)
        assert rows(db) == sorted([*range(4), *range(4)])
        assert db.execute("SELECT count(*) FROM penstock_ledger").fetchone() == (2,)

    def test_a_job_restored_from_a_savepoint_continues_after_it(self, db, postgres, tmp_path):
        first = job(PostgresSink(postgres, "numbers"))
        first.epoch(10)
        first.epoch(10)
        saved = first.stop_with_savepoint(tmp_path)
        with job(PostgresSink(postgres, "numbers"), from_savepoint=saved) as second:
            second.epochs(5)
        assert rows(db) == list(range(40))

    def test_a_job_restored_from_an_old_savepoint_writes_its_own_epochs(self, db, postgres, tmp_path):
        """Its epoch numbers were already written by the other lineage, with different records."""
        first = job(PostgresSink(postgres, "numbers"))
        first.epoch(10)
        saved = first.savepoint(tmp_path)
        first.epoch(10)
        first.epoch(10)
        first.close()
        others = [*range(10), *range(100, 105)]
        with job(PostgresSink(postgres, "numbers"), others, from_savepoint=saved) as second:
            second.epoch()
        assert rows(db) == [*range(30), *range(100, 105)]


class Seen(PostgresSink):
    commits = []

    def commit(self, commits, context):
        Seen.commits.append((commits, context))
        super().commit(commits, context)


class TestADriverThatWasThoughtDead:
    def test_a_stale_driver_cannot_commit_an_older_epoch(self, db, postgres):
        Seen.commits.clear()
        with job(Seen(postgres, "totals", key="word"), [("a", 1), ("a", 2)]) as harness:
            harness.run(1)
            old = PostgresSink(postgres, "totals", key="word")
            old.commit(*Seen.commits[0])
        assert rows(db, "totals", "word, total") == [("a", 2)]

    def test_a_stale_driver_that_hangs_in_a_commit_is_terminated(self, db, postgres, monkeypatch):
        monkeypatch.setattr(ledger, "STALLED_SECONDS", 0.05)
        with job(PostgresSink(postgres, "numbers")) as harness, psycopg.connect(postgres) as stopped:
            harness.epoch(10)
            lineage = harness._driver.lineage
            book = ledger.Ledger("public", "numbers")
            assert book.enter(stopped, lineage, "out", 2)
            stopped.execute("INSERT INTO numbers (n) VALUES (10)")
            harness.epoch(10)
            with pytest.raises(psycopg.OperationalError):
                stopped.commit()
        assert rows(db) == list(range(20))

    def test_a_concurrent_commit_of_the_same_epoch_is_written_once(self, db, postgres):
        with job(PostgresSink(postgres, "numbers")) as harness:
            harness.epoch(10)
            book = ledger.Ledger("public", "numbers")
            with psycopg.connect(postgres) as other:
                assert book.enter(other, harness._driver.lineage, "out", 2)
            harness.epoch(10)
        # The other commit wrote no rows, so the table has none of the second epoch.
        assert rows(db) == list(range(10))


@pytest.fixture
def own_server():
    server = PostgresServer().start()
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute("CREATE TABLE numbers (n int, word text)")
    yield server
    server.close()


class Dying(PostgresSink):
    """Kills and restarts its server once, at a point of the second commit."""

    server = None
    at = None

    def _passes(self, point, commits):
        if point == Dying.at and commits[0].epoch == 2:
            Dying.at = None
            Dying.server.kill()
            Dying.server.start()

    def _write(self, connection, target, commits, context):
        self._passes("before", commits)
        super()._write(connection, target, commits, context)
        if Dying.at == "answered" and commits[0].epoch == 2:
            self._passes("answered", commits)
            # The server has committed, but the driver only sees a lost connection.
            connection.execute("SELECT 1")

    def _copy(self, cursor, statement, commits, context):
        self._passes("entered", commits)
        super()._copy(cursor, statement, commits, context)
        self._passes("copied", commits)

    def _chunks(self, commits, context):
        for chunk in super()._chunks(commits, context):
            yield chunk
            self._passes("copying", commits)


class TestAServerThatIsKilled:
    @pytest.mark.parametrize("at", ["before", "entered", "copying", "copied", "answered"])
    def test_every_record_is_written_once_if_the_server_is_killed_around_a_commit(self, own_server, at):
        Dying.server, Dying.at = own_server, at
        with job(Dying(own_server.conninfo(), "numbers"), parallelism=2) as harness:
            harness.run(10)
        assert Dying.at is None
        with psycopg.connect(own_server.conninfo()) as db:
            assert rows(db) == list(range(40))

    def test_a_server_that_stays_down_fails_the_job_which_resumes_later(self, own_server):
        sink = PostgresSink(own_server.conninfo(), "numbers", retry_seconds=0)
        with job(sink) as harness:
            harness.epoch(10)
            own_server.kill()
            with pytest.raises(PenstockError, match="committing epoch 2 of sink 'out' to table 'numbers' failed"):
                harness.epoch(10)
            own_server.start()
            harness.crash()
            harness.run(10)
        with psycopg.connect(own_server.conninfo()) as db:
            assert rows(db) == list(range(40))

    def test_a_restart_strategy_waits_for_the_server(self, own_server):
        sink = PostgresSink(own_server.conninfo(), "numbers", retry_seconds=0)
        env = StreamExecutionEnvironment.get_execution_environment()
        env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
        env.get_configuration().set_string("restart-strategy.fixed-delay.attempts", "3")
        env.from_collection([(n, "") for n in range(20)]).sink_to(sink)
        with JobHarness(env) as harness:
            harness.epoch(10)
            own_server.kill()
            harness.clock.wait = lambda seconds: own_server.start()
            harness.run(10)
            assert harness.restarts == 1
        with psycopg.connect(own_server.conninfo()) as db:
            assert rows(db) == list(range(20))


class Forgetful(PostgresSink):
    """Fails after its first commit, as if the response had been lost for longer than it waits."""

    failed = False

    def commit(self, commits, context):
        super().commit(commits, context)
        if not Forgetful.failed:
            Forgetful.failed = True
            raise ConnectionError("no answer")


def test_a_repeated_batch_job_does_not_write_twice(db, postgres):
    Forgetful.failed = False
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
    env.from_collection([(n, "") for n in range(10)]).rebalance().sink_to(Forgetful(postgres, "numbers"))
    with JobHarness(env) as harness:
        harness.run()
        assert harness.restarts == 1
    assert rows(db) == list(range(10))


class Mood(enum.Enum):
    GLAD = "glad"


@dataclass
class Number:
    n: int
    word: str


class TestRecords:
    def write(self, sink, *records):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection(list(records)).sink_to(sink).uid("out")
        with JobHarness(env) as harness:
            harness.run()

    def test_records_can_have_any_shape_with_the_column_names(self, db, postgres):
        records = [(1, "a"), Row(2, "b"), Row(word="c", n=3), {"word": "d", "n": 4, "more": 0}, Number(5, "e")]
        self.write(PostgresSink(postgres, "numbers"), *records)
        assert rows(db, columns="n, word") == [(n, "abcde"[n - 1]) for n in range(1, 6)]

    def test_records_fill_the_columns_of_their_declared_type(self, db, postgres):
        db.execute("ALTER TABLE numbers ADD COLUMN id serial PRIMARY KEY, ADD COLUMN at timestamptz DEFAULT now()")
        env = StreamExecutionEnvironment.get_execution_environment()
        stream = env.from_collection(
            [("a", 1)], type_info=Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
        )
        stream.sink_to(PostgresSink(postgres, "numbers"))
        with JobHarness(env) as harness:
            harness.run()
        assert rows(db, columns="id, word, n") == [(1, "a", 1)]

    def test_a_record_is_written_with_the_value_it_had_at_write(self, db, postgres):
        db.execute("CREATE TABLE documents (n int, document jsonb)")

        def changing(n):
            DOCUMENT["n"] = n
            return (n, DOCUMENT)

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection(range(3)).rebalance().map(changing).sink_to(PostgresSink(postgres, "documents"))
        with JobHarness(env) as harness:
            harness.run()
        assert rows(db, "documents", "n, document->>'n'") == [(0, "0"), (1, "1"), (2, "2")]

    def test_values_of_all_types_round_trip(self, db, postgres):
        db.execute(
            """CREATE TYPE mood AS ENUM ('sad', 'glad');
            CREATE DOMAIN short AS text CHECK (length(VALUE) < 9);
            CREATE TABLE typed (i2 int2, i8 int8, f4 float4, f8 float8, num numeric(8, 2), free numeric, b bool,
                t text, v varchar(3), c char(2), raw bytea, d date, ts timestamp, tz timestamptz, ti time,
                iv interval, u uuid, j json, jb jsonb, m mood, a int[], s short, empty text)"""
        )
        zone = dt.timezone(dt.timedelta(hours=-3, minutes=-30))
        moment = dt.datetime(2026, 3, 4, 5, 6, 7, 89, zone)
        record = (
            -32768, 2**63 - 1, 0.5, -1e300, decimal.Decimal("999999.99"), decimal.Decimal("1E+30"), True,
            "tab\tline\nreturn\rback\\slash \\N é 漢 \x01", "abc", "x ", b"\0\\\xff", dt.date(1, 2, 3),
            dt.datetime(2026, 1, 1), moment, dt.time(23, 59, 59, 999999), dt.timedelta(days=-2, seconds=5),
            uuid.UUID(int=7), {"a": "\n\\"}, [1, None, "ü"], Mood.GLAD, [1, None, 3], "word", None,
        )  # fmt: skip
        self.write(PostgresSink(postgres, "typed"), record)
        [found] = db.execute("SELECT * FROM typed").fetchall()
        assert found == (*record[:19], "glad", *record[20:])

    def test_generated_values_round_trip(self, db, postgres):
        db.execute(
            "CREATE TABLE typed (place int, t text, i int8, f float8, d date, b bool, u uuid, ts timestamp, ti time, "
            "num numeric, raw bytea, tz timestamptz, iv interval, j jsonb, words text[])"
        )
        telling = st.sampled_from(["null", "\\N", "]\n[", '"', "\\.", "\\", ",", "\n", "\r\n", "\t", "\\u0000", "\x01"])
        texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
        texts |= st.lists(telling, max_size=4).map("".join)
        common = [
            st.none() | texts,
            st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            st.dates(),
            st.booleans(),
            st.uuids(),
            st.datetimes(),
            st.times(),
        ]
        rare = [
            st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30),
            st.binary(max_size=6),
            st.datetimes(timezones=st.just(dt.UTC)),
            st.timedeltas(dt.timedelta(days=-(10**6)), dt.timedelta(days=10**6)),
            st.dictionaries(texts, st.integers(-9, 9) | texts | st.none(), max_size=2),
            st.lists(st.none() | texts, max_size=2),
        ]
        target = find_target(db, "typed", None, None, None, "test", "here")

        def run(kinds):
            columns = target.columns[: len(kinds) + 1]
            encoder, names = RowEncoder(target.table, columns, "test"), ", ".join(column.name for column in columns)

            @settings(max_examples=60)
            @given(st.lists(st.tuples(*kinds), min_size=1, max_size=5))
            def run(records):
                records = [(place, *record) for place, record in enumerate(records)]
                db.execute("TRUNCATE typed")
                written = encoder.encode(records)
                with db.cursor() as cursor, cursor.copy(f"COPY typed ({names}) FROM STDIN ({FORMAT})") as copy:
                    copy.write(written)
                assert db.execute(f"SELECT {names} FROM typed ORDER BY place").fetchall() == records
                # An error for the line at which the server stopped shows this record.
                assert record_at(written.count(b"\n"), [written])[0] == str(records[-1][0])

            run()

        run(common)
        run(common + rare)

    def test_unusual_types_are_encoded_the_same_in_every_batch(self, db, postgres):
        class Word(str):
            def __str__(self):
                return "no"

        class Number(int):
            pass

        class Known(enum.Enum):
            ONE = 1
            A = "a"

        far = dt.timezone(dt.timedelta(hours=1, seconds=7))
        db.execute("CREATE TABLE others (w text, n int4, f float4, tz timestamptz)")
        for w in ("a", Word("a"), Known.A):
            for n in (1, Number(1), Known.ONE):
                for f in (1.0, 1):
                    for tz in (dt.datetime(2026, 1, 1, 1, 0, 7, tzinfo=far), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)):
                        self.write(PostgresSink(postgres, "others"), (w, n, f, tz), ("a", 1, 1.0, tz))
        assert rows(db, "others", "DISTINCT w, n, f, tz AT TIME ZONE 'UTC'") == [("a", 1, 1.0, dt.datetime(2026, 1, 1))]

    def test_equivalent_numeric_types_are_accepted(self, db, postgres):
        db.execute("CREATE TABLE others (f8 float8, num numeric(4, 1), u uuid)")
        text = str(uuid.UUID(int=9))
        self.write(
            PostgresSink(postgres, "others"), (1, 2.25, text), (float("inf"), 3, text), (float("nan"), None, None)
        )
        found = [(repr(f), n) for f, n in db.execute("SELECT f8, num FROM others")]
        assert found == [("1.0", decimal.Decimal("2.3")), ("inf", decimal.Decimal("3.0")), ("nan", None)]

    def test_the_higher_subtask_wins_if_two_write_the_same_key(self, db, postgres):
        with job(
            PostgresSink(postgres, "totals", key=["word"]), [("a", 1), ("a", 2), ("a", 3)], parallelism=2
        ) as harness:
            # Round-robin: 1 and 3 go to the first subtask, 2 to the second.
            harness.epoch()
        assert rows(db, "totals", "total") == [2]

    def test_the_last_record_of_a_key_wins_beyond_the_memory_of_a_task(self, db, postgres, monkeypatch):
        monkeypatch.setattr(postgres_sink, "_KEYS", 3)
        records = [(f"word {n % 4}", n) for n in range(40)]
        with job(PostgresSink(postgres, "totals", key="word"), records) as harness:
            harness.epoch()
        assert rows(db, "totals", "word, total") == [(f"word {n}", 36 + n) for n in range(4)]

    def test_a_table_with_only_a_key_holds_each_key_once(self, db, postgres):
        db.execute("CREATE TABLE seen (n int PRIMARY KEY)")
        with job(PostgresSink(postgres, "seen", key="n", columns=["n"]), [{"n": 1}, {"n": 2}, {"n": 1}]) as harness:
            harness.run(2)
        assert rows(db, "seen") == [1, 2]

    def test_an_upsert_replaces_only_the_columns_of_the_record(self, db, postgres):
        db.execute("ALTER TABLE totals ADD COLUMN note text; INSERT INTO totals VALUES ('a', 1, 'keep')")
        sink = PostgresSink(postgres, "totals", key="word", columns=["word", "total"])
        self.write(sink, ("a", 5))
        assert rows(db, "totals", "word, total, note") == [("a", 5, "keep")]


DOCUMENT = {}
