"""The server that tests of PostgreSQL rely on: what was committed outlives its death, and passwords are asked for."""

import psycopg
import pytest

from chaos.servers.postgres import PostgresServer


def test_a_killed_server_has_what_was_committed_and_no_more():
    server = PostgresServer().start()
    try:
        with psycopg.connect(server.conninfo()) as connection:
            connection.execute("CREATE TABLE numbers (n int)")
            connection.execute("INSERT INTO numbers VALUES (1)")
            connection.commit()
            connection.execute("INSERT INTO numbers VALUES (2)")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
        server.start()
        with psycopg.connect(server.conninfo()) as connection:
            assert connection.execute("SELECT n FROM numbers").fetchall() == [(1,)]
    finally:
        server.close()


def test_a_password_is_asked_for_on_loopback(postgres_server):
    with psycopg.connect(postgres_server.tcp_conninfo()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_server.tcp_conninfo(password="wrong"))


def test_each_test_has_a_database_of_its_own(postgres, postgres_server):
    for conninfo in (postgres, postgres_server.conninfo(postgres_server.new_database())):
        with psycopg.connect(conninfo) as connection:
            connection.execute("CREATE TABLE same (n int)")
