"""What a user may get wrong with PostgreSQL: refused before a record is read, in words that help, without passwords."""

import pickle

import psycopg
import pytest

from penstock.datastream.connectors.postgres import PostgresSource
from penstock.errors import PenstockError

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
            ("", "evens", "id", "there is no table 'evens' in PostgreSQL at ", "Did you mean 'events'?"),
            ("", "a table; --", "id", "there is no table 'a table; --'", "schema.a table"),
            ("", "events", "ids", "table 'public.events' .* has no column 'ids'; it has 'id', 'word'", "mean 'id'"),
            ("", "events", "word", "column 'word' of table 'public.events' .* is text", "bigint GENERATED ALWAYS"),
            ("CREATE VIEW seen AS TABLE events", "seen", "id", "'public.seen' .* is no table", "Name a table"),
            ("ALTER SEQUENCE events_id_seq CACHE 20", "events", "id", "'events_id_seq', which has CACHE 20", "CACHE 1"),
            ("ALTER SEQUENCE events_id_seq CYCLE", "events", "id", "'events_id_seq', which has CYCLE", "NO CYCLE"),
            ("CREATE TABLE t (n int PRIMARY KEY)", "t", "n", "gets its numbers from its writers", "trust_numbers=True"),
            ("CREATE TABLE t (n serial)", "t", "n", "column 'n' of table 'public.t' .* no index", "CREATE INDEX"),
            ("CREATE UNLOGGED TABLE t (n serial PRIMARY KEY)", "t", "n", "is unlogged", "SET LOGGED"),
        ],
    )
    def test_what_it_could_not_read_soundly(self, db, postgres, made, table, key, said, fix):
        db.execute(made)
        with pytest.raises(PenstockError, match=said) as caught:
            begin(PostgresSource(postgres, table, key))
        assert fix in caught.value.fix
        assert caught.value.lasting
        assert str(caught.value).startswith("PostgresSource: ")

    def test_a_column_that_is_not_there(self, db, postgres):
        with pytest.raises(PenstockError, match="has no column 'wort'") as caught:
            begin(PostgresSource(postgres, "events", "id", columns=["id", "wort"]))
        assert caught.value.fix == "Did you mean 'word'?"

    def test_a_wrong_password_at_once(self, postgres_server):
        conninfo = postgres_server.tcp_conninfo(password="not-the-right-one")
        with pytest.raises(PenstockError, match="127.0.0.1:.*'postgres' refuses the user 'postgres'") as caught:
            begin(PostgresSource(conninfo, "events", "id"))
        assert caught.value.lasting
        assert "Correct the connection" in caught.value.fix

    def test_a_database_that_is_not_there(self, postgres_server):
        with pytest.raises(PenstockError, match='database "shop" does not exist'):
            begin(PostgresSource(postgres_server.conninfo("shop"), "events", "id"))

    def test_options_that_cannot_be(self, postgres):
        for options, said in [
            ({"records": "list"}, "records must be 'row', 'tuple' or 'dict', not 'list'"),
            ({"splits": 0}, "splits must be a whole number from 1 on, not 0"),
            ({"columns": []}, "columns must be different names"),
            ({"columns": ["a", "a"]}, "columns must be different names"),
            ({"retry_seconds": "1"}, "retry_seconds must be a number"),
        ]:
            with pytest.raises(PenstockError, match=said):
                PostgresSource(postgres, "events", "id", **options)


class TestNumbersThatTheUserVouchesFor:
    def test_are_read_though_writers_give_them(self, db, postgres):
        db.execute("CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (5), (7)")
        assert begin(PostgresSource(postgres, "t", "n", trust_numbers=True)) == {"0/1": 7}


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
    def test_is_shown_by_nothing(self, connection):
        source = pickle.loads(pickle.dumps(PostgresSource(connection, "events", "id", retry_seconds=0)))
        with pytest.raises(PenstockError) as caught:
            begin(source)
        shown = f"{source!r} {caught.value} {caught.value.fix}"
        assert self.SECRET not in shown
        assert "127.0.0.1:1, database 'shop'" in shown

    @pytest.mark.parametrize("connection", [f"host=db {SECRET}", f"postgresql://flow:{SECRET}%zz@db", {SECRET: 1}, 5])
    def test_is_not_shown_where_the_connection_cannot_be_understood(self, connection):
        with pytest.raises(PenstockError, match="PostgresSource: the connection cannot be understood") as caught:
            PostgresSource(connection, "events", "id")
        assert self.SECRET not in str(caught.value)
        assert caught.value.__suppress_context__
