"""The server of the PostgreSQL tests: commits survive a kill, and connections need a password."""

import psycopg
import pytest

from chaos.servers.postgres import PostgresServer


def test_a_killed_server_keeps_exactly_the_committed_rows():
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


def test_loopback_connections_need_a_password(postgres_server):
    with psycopg.connect(postgres_server.tcp_conninfo()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_server.tcp_conninfo(password="wrong"))


def test_each_test_has_a_separate_database(postgres, postgres_server):
    for conninfo in (postgres, postgres_server.conninfo(postgres_server.new_database())):
        with psycopg.connect(conninfo) as connection:
            connection.execute("CREATE TABLE same (n int)")
