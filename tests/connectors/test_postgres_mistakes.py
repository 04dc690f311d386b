"""User errors with PostgreSQL are rejected before a record is read, with helpful messages and without passwords."""

import datetime as dt
import pickle
from decimal import Decimal

import psycopg
import pytest

from penstock.common.row import Row, RowKind
from penstock.common.typeinfo import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource
from penstock.errors import PenstockError
from penstock.testing import JobHarness

TABLE = "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, word text)"


@pytest.fixture
def db(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def begin(source):
    try:
        return source.advance(source.start(1), None)
    finally:
        source.close()


class TestASourceRefuses:
    @pytest.mark.parametrize(
        ("made", "table", "key", "said", "fix"),
        [
            ("", "evens", "id", "table 'evens' does not exist in PostgreSQL at ", "Did you mean 'events'?"),
            ("", "a table; --", "id", "table 'a table; --' does not exist", "schema.a table"),
            ("", "events", "ids", "table 'public.events' .* has no column 'ids'; it has 'id', 'word'", "mean 'id'"),
            ("", "events", "word", "column 'word' of table 'public.events' .* is text", "bigint GENERATED ALWAYS"),
            ("CREATE VIEW seen AS TABLE events", "seen", "id", "'public.seen' .* is not a table", "Use a table"),
            ("ALTER SEQUENCE events_id_seq CACHE 20", "events", "id", "'events_id_seq', which has CACHE 20", "CACHE 1"),
            ("ALTER SEQUENCE events_id_seq CYCLE", "events", "id", "'events_id_seq', which has CYCLE", "NO CYCLE"),
            ("CREATE TABLE t (n int PRIMARY KEY)", "t", "n", "is numbered by its writers", "trust_numbers=True"),
            ("CREATE TABLE t (n serial)", "t", "n", "column 'n' of table 'public.t' .* no index", "CREATE INDEX"),
            ("CREATE UNLOGGED TABLE t (n serial PRIMARY KEY)", "t", "n", "is unlogged", "SET LOGGED"),
        ],
    )
    def test_a_source_rejects_tables_it_cannot_read_reliably(self, db, postgres, made, table, key, said, fix):
        db.execute(made)
        with pytest.raises(PenstockError, match=said) as caught:
            begin(PostgresSource(postgres, table, key))
        assert fix in caught.value.fix
        assert not caught.value.retryable
        assert str(caught.value).startswith("PostgresSource: ")

    def test_a_missing_column_of_a_source_is_reported(self, db, postgres):
        with pytest.raises(PenstockError, match="has no column 'wort'") as caught:
            begin(PostgresSource(postgres, "events", "id", columns=["id", "wort"]))
        assert caught.value.fix == "Did you mean 'word'?"

    def test_a_wrong_password_fails_a_source_immediately(self, postgres_server):
        conninfo = postgres_server.tcp_conninfo(password="not-the-right-one")
        with pytest.raises(PenstockError, match=r"127\.0\.0\.1:.*'postgres' rejects the user 'postgres'") as caught:
            begin(PostgresSource(conninfo, "events", "id"))
        assert not caught.value.retryable
        assert "Correct the connection" in caught.value.fix

    def test_a_missing_database_is_reported(self, postgres_server):
        with pytest.raises(PenstockError, match='database "shop" does not exist'):
            begin(PostgresSource(postgres_server.conninfo("shop"), "events", "id"))

    def test_invalid_options_are_rejected(self, postgres):
        for options, said in [
            ({"records": "list"}, "records must be 'row', 'tuple' or 'dict', not 'list'"),
            ({"splits": 0}, "splits must be an int of at least 1, not 0"),
            ({"columns": []}, "columns must be distinct column names"),
            ({"columns": ["a", "a"]}, "columns must be distinct column names"),
            ({"retry_seconds": "1"}, "retry_seconds must be a number"),
        ]:
            with pytest.raises(PenstockError, match=said):
                PostgresSource(postgres, "events", "id", **options)


class TestNumbersThatTheUserVouchesFor:
    def test_trusted_numbers_of_writers_are_read(self, db, postgres):
        db.execute("CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (5), (7)")
        assert begin(PostgresSource(postgres, "t", "n", trust_numbers=True)) == {"0/1": 7}


def job(sink, records=(), kind=None):
    """Return a job that has validated its sinks but read no record."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(list(records), type_info=kind).sink_to(sink).uid("out")
    return JobHarness(env)


class TestASinkRefusesBeforeARecordIsRead:
    @pytest.mark.parametrize(
        ("made", "options", "said", "fix"),
        [
            ("", {"table": "evens"}, "table 'evens' does not exist", "Did you mean 'events'?"),
            ("", {"columns": ["word", "amuont"]}, "has no column 'amuont'", "ADD COLUMN"),
            ("", {"columns": ["id", "word"]}, "column 'id' of .* is generated by the server", r"columns=['word']"),
            ("", {"key": "word"}, "column 'word' of .* is part of the key but nullable", "SET NOT NULL"),
            (
                "ALTER TABLE events ALTER word SET NOT NULL",
                {"key": "word"},
                r"no unique index on the key \(word\)",
                "ADD UNIQUE (word)",
            ),
            (
                "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))",
                {"table": "t", "key": "a"},
                r"no unique index on the key \(a\)",
                "ADD UNIQUE (a)",
            ),
            (
                "CREATE TABLE t (a int PRIMARY KEY, b int)",
                {"table": "t", "key": "a", "columns": ["b"]},
                "column 'a' of .* NOT NULL and has no default",
                "columns=['b', 'a']",
            ),
        ],
    )
    def test_a_sink_rejects_tables_it_cannot_write_to(self, db, postgres, made, options, said, fix):
        db.execute(made)
        with pytest.raises(PenstockError, match=said) as caught:
            job(PostgresSink(postgres, **{"table": "events", **options}))
        assert fix in caught.value.fix
        assert not caught.value.retryable
        assert "PostgresSink (uid 'out')" in str(caught.value)

    def test_a_wrong_password_fails_a_sink(self, postgres_server):
        with pytest.raises(PenstockError, match="rejects the user 'postgres'"):
            job(PostgresSink(postgres_server.tcp_conninfo(password="wrong"), "events"))

    def test_records_declared_with_other_types_are_rejected(self, db, postgres):
        db.execute("CREATE TABLE typed (n int, at timestamptz)")
        kind = Types.ROW_NAMED(["n", "at"], [Types.STRING(), Types.SQL_TIMESTAMP()])
        with pytest.raises(PenstockError, match=r"column 'n' of table 'public.typed' .* is integer, .* declare string"):
            job(PostgresSink(postgres, "typed"), kind=kind)

    def test_a_missing_insert_privilege_is_reported(self, db, postgres):
        db.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT SELECT ON events TO guest")
        guest = psycopg.conninfo.make_conninfo(postgres, user="guest")
        with pytest.raises(PenstockError, match="no INSERT privilege on column 'word'") as caught:
            job(PostgresSink(guest, "events"))
        assert caught.value.fix == "GRANT INSERT ON public.events TO guest."

    def test_a_missing_privilege_to_create_the_ledger_is_reported(self, db, postgres):
        db.execute("DROP ROLE IF EXISTS writer; CREATE ROLE writer LOGIN; GRANT INSERT ON events TO writer")
        writer = psycopg.conninfo.make_conninfo(postgres, user="writer")
        with pytest.raises(PenstockError, match='not allowed to create the table "public"') as caught:
            job(PostgresSink(writer, "events"))
        db.execute(caught.value.fix.partition(":")[2])
        db.execute("GRANT SELECT, INSERT, UPDATE ON penstock_ledger TO writer")
        with job(PostgresSink(writer, "events"), [("a",)]) as harness:
            harness.run()
        assert db.execute("SELECT word FROM events").fetchall() == [("a",)]


class TestADeferrableKey:
    """PostgreSQL does not support one in ON CONFLICT, and reports it only when the first epoch is committed."""

    @pytest.mark.parametrize(
        "made",
        [
            "CREATE TABLE t (n int NOT NULL UNIQUE DEFERRABLE, w text)",
            "CREATE TABLE t (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, w text)",
            "CREATE TABLE t (n int NOT NULL UNIQUE DEFERRABLE, w text); CREATE UNIQUE INDEX ON t (n)",
        ],
    )
    def test_a_deferrable_key_is_rejected_by_name_at_the_start(self, db, postgres, made):
        db.execute(made)
        (name,) = db.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = 't'::regclass AND condeferrable"
        ).fetchone()
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([(1, "x")]).uid("s").sink_to(PostgresSink(postgres, "t", key="n")).uid("out")
        with pytest.raises(
            PenstockError, match=rf"'out'.*key \(n\) of table 'public\.t'.*'{name}'.*DEFERRABLE"
        ) as caught:
            JobHarness(env)
        assert not caught.value.retryable
        assert f"DROP CONSTRAINT {name}, ADD UNIQUE (n)" in caught.value.fix

    def test_a_deferrable_constraint_on_other_columns_is_accepted(self, db, postgres):
        db.execute("CREATE TABLE t (n int PRIMARY KEY, w text UNIQUE DEFERRABLE)")
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([(1, "x"), (1, "y")]).uid("s").sink_to(PostgresSink(postgres, "t", key="n")).uid("out")
        with JobHarness(env) as job:
            job.run(1)
        assert db.execute("TABLE t").fetchall() == [(1, "y")]

    def test_a_without_overlaps_constraint_does_not_count_as_a_unique_key(self, db, postgres):
        db.execute("CREATE TABLE t (n int4range NOT NULL, d int4range NOT NULL, UNIQUE (n, d WITHOUT OVERLAPS))")
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([]).uid("s").sink_to(PostgresSink(postgres, "t", key=["n", "d"])).uid("out")
        with pytest.raises(PenstockError, match=r"no unique index on the key \(n, d\)"):
            JobHarness(env)


class TestARecordThatDoesNotFit:
    @pytest.mark.parametrize(
        ("kind", "value", "said"),
        [
            ("int", 2**31, "outside -2147483648 to 2147483647"),
            ("int", "5", "type is str, not int"),
            ("int", True, "type is bool, not int"),
            ("real", 1e39, "too large"),
            ("double precision", "1", "type is str, not float"),
            ("numeric(4, 1)", Decimal("999.95"), "more than 3 digits before the decimal point"),
            ("numeric(4, 1)", Decimal("1E+99999"), "more than 3 digits before the decimal point"),
            ("numeric(2, 4)", Decimal("0.1"), "more than 0 digits"),
            ("boolean", 1, "type is int, not bool"),
            ("text", "a\0b", "a NUL character"),
            ("text", "\ud800", "half of a surrogate pair"),
            ("text", 5, "type is int, not str"),
            ("varchar(3)", "abcd", "it has 4 characters, but the column holds 3"),
            ("bytea", "a", "type is str, not bytes"),
            ("date", dt.datetime(2026, 1, 1), "type is datetime, not date"),
            ("timestamp", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "it has a time zone"),
            ("timestamptz", dt.datetime(2026, 1, 1), "it has no time zone"),
            ("uuid", "abc", "it is not a UUID"),
            ("jsonb", {"a": {1, 2}}, "it is not JSON"),
            ("jsonb", float("nan"), "it is not JSON"),
            ("mood", "angry", "it is not one of 'sad', 'glad'"),
            ("int not null", None, "it is None, but the column is NOT NULL"),
        ],
    )
    def test_a_mismatched_value_is_reported_by_the_task_with_its_column(self, db, postgres, kind, value, said):
        db.execute(f"CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE t (place int, v {kind})")
        good = [(n, None if "not null" not in kind else 0) for n in range(3)]
        with job(PostgresSink(postgres, "t"), [*good, (3, value), *good]) as harness:
            with pytest.raises(PenstockError, match=f"column 'v' is .*{said}") as caught:
                harness.run()
            assert "The record: place=3, v=" in str(caught.value)
            assert "Operator 'PostgresSink' (uid 'out')" in str(caught.value)
        assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)

    def test_a_record_rejected_at_commit_is_reported_and_written_once_it_is_valid(self, db, postgres):
        db.execute("ALTER TABLE events ADD CONSTRAINT short CHECK (length(word) < 5)")
        with job(PostgresSink(postgres, "events"), [("a",), ("too long",), ("b",)]) as harness:
            with pytest.raises(PenstockError, match="violates check constraint") as caught:
                harness.epoch()
            assert "The record: word=too long." in str(caught.value)
            assert "PostgresSink (uid 'out')" in str(caught.value)
            assert not caught.value.retryable
            assert db.execute("SELECT count(*) FROM events").fetchone() == (0,)
            db.execute("ALTER TABLE events DROP CONSTRAINT short")
            harness.crash()
            harness.run()
        assert db.execute("SELECT word FROM events ORDER BY id").fetchall() == [("a",), ("too long",), ("b",)]

    def test_a_value_that_the_server_cannot_parse_is_reported_with_its_column(self, db, postgres):
        db.execute("CREATE TABLE t (n int, net inet)")
        said = pytest.raises(PenstockError, match=r"Column 'net' is inet\. The record: n=2, net=no net")
        with job(PostgresSink(postgres, "t"), [(1, "10.0.0.1"), (2, "no net")]) as harness, said:
            harness.epoch()

    def test_a_record_that_retracts_a_row_is_rejected(self, db, postgres):
        said = pytest.raises(PenstockError, match=r"inserts rows, but the record .* retracts one")
        with job(PostgresSink(postgres, "events"), [Row.of_kind(RowKind.DELETE, "a")]) as harness, said:
            harness.epoch()


class TestAPassword:
    SECRET = "hunter2-is-secret"

    @pytest.mark.parametrize(
        "connection",
        [
            f"host=127.0.0.1 port=1 dbname=shop user=flow password={SECRET}",
            f"postgresql://flow:{SECRET}@127.0.0.1:1/shop",
            {"host": "127.0.0.1", "port": 1, "dbname": "shop", "user": "flow", "password": SECRET},
        ],
    )
    def test_a_password_is_never_shown(self, connection):
        source = pickle.loads(pickle.dumps(PostgresSource(connection, "events", "id", retry_seconds=0)))
        with pytest.raises(PenstockError) as caught:
            begin(source)
        shown = f"{source!r} {caught.value} {caught.value.fix}"
        assert self.SECRET not in shown
        assert "127.0.0.1:1, database 'shop'" in shown

    @pytest.mark.parametrize("connection", [f"host=db {SECRET}", f"postgresql://flow:{SECRET}%zz@db", {SECRET: 1}, 5])
    def test_a_password_is_not_shown_if_the_connection_is_invalid(self, connection):
        with pytest.raises(PenstockError, match="PostgresSource: the connection settings are invalid") as caught:
            PostgresSource(connection, "events", "id")
        assert self.SECRET not in str(caught.value)
        assert caught.value.__suppress_context__
