"""Transient PostgreSQL errors are retried or left to the restart strategy; permanent ones end the job."""

import psycopg
import pytest
from psycopg import errors

from penstock.checkpoint.wal import WriteAheadLog
from penstock.common import RestartStrategies
from penstock.connectors.postgres.connection import PostgresEndpoint, PostgresError, PostgresRefused, Session
from penstock.connectors.postgres.sqlstates import NOT_RETRYABLE, RETRYABLE, is_brief, passes
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource
from penstock.driver.committing import CommitContext
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness

KNOWN = sorted(code for code in errors._sqlcodes if len(code) == 5)
"""All SQLSTATE codes for which psycopg has a class, which are all of PostgreSQL's."""
COME_AGAIN = [
    *("0A000", "21000", "22001", "22003", "22007", "22P02", "23502", "23503", "23505", "23514", "23P01", "25001"),
    *("28000", "28P01", "2BP01", "3D000", "3F000", "40002", "42501", "42601", "42703", "42804", "42883", "42P01"),
    *("42P10", "44000", "53400", "54000", "54001", "55000", "55P02", "57P04", "P0001", "P0004", "XX001", "XX002"),
]
PASS = [
    *("08000", "08003", "08006", "08P01", "25006", "25P03", "25P04", "40001", "40P01", "53000", "53100", "53200"),
    *("53300", "55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "58000", "58030", "XX000"),
]


class TestSqlstates:
    @pytest.mark.parametrize("code", PASS)
    def test_a_transient_sqlstate_is_recognized(self, code):
        assert passes(code)

    @pytest.mark.parametrize("code", COME_AGAIN)
    def test_a_permanent_sqlstate_is_recognized(self, code):
        assert not passes(code)

    @pytest.mark.parametrize("code", KNOWN)
    def test_sqlstates_of_data_syntax_and_privileges_are_permanent(self, code):
        if code[:2] in ("21", "22", "23", "28", "2B", "38", "39", "3D", "3F", "44", "54", "P0"):
            assert not passes(code)
        if code[:2] == "42":
            assert passes(code) == (code == "42P05")

    def test_an_error_without_a_sqlstate_is_a_connection_error(self):
        assert passes(None)
        assert not is_brief(None)

    def test_listed_sqlstates_exist(self):
        # Two codes of older servers, and one of foreign servers.
        assert {*RETRYABLE, *NOT_RETRYABLE} - set(KNOWN) <= {"72000", "HV00N", "25P04"}


@pytest.fixture
def db(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int PRIMARY KEY, w text)")
        connection.execute("CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w text)")
        yield connection


def configured(db, setting):
    """Apply a setting to new sessions."""
    db.execute(f"ALTER DATABASE {db.info.dbname} {setting}")
    db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'")


class Sometimes(PostgresSink):
    """Runs a cure after its server has rejected a commit, before the sink can retry."""

    cures = []

    @classmethod
    def cured_by(cls, cure, *args, **options):
        cls.cures[:] = [cure]
        return cls(*args, **options)

    def _write(self, connection, target, commits, context):
        try:
            super()._write(connection, target, commits, context)
        except psycopg.Error as error:
            while self.cures and error.sqlstate != "57P01":
                self.cures.pop()()
            raise


def job(sink, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([(n, "x") for n in range(20)]).uid("s").sink_to(sink).uid("out")
    return JobHarness(env, **options)


class TestASink:
    @pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout", "transaction_timeout"])
    def test_a_sink_waits_for_a_lock(self, db, postgres, setting):
        with psycopg.connect(postgres) as other, job(Sometimes.cured_by(other.rollback, postgres, "t")) as harness:
            configured(db, f"SET {setting} = 100")
            other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            harness.run(10)
            assert harness.restarts == 0
        assert db.execute("SELECT count(*) FROM t").fetchone() == (20,)

    def test_a_sink_waits_for_a_temporarily_read_only_server(self, db, postgres):
        def promoted():
            db.execute(f"ALTER DATABASE {db.info.dbname} RESET default_transaction_read_only")

        with job(Sometimes.cured_by(promoted, postgres, "t")) as harness:
            configured(db, "SET default_transaction_read_only = on")
            db.execute("SET default_transaction_read_only = off")
            harness.run(10)
            assert harness.restarts == 0
        assert db.execute("SELECT count(*) FROM t").fetchone() == (20,)

    @pytest.mark.parametrize(
        ("setting", "said", "fix"),
        [
            ("SET default_transaction_read_only = on", "read-only transaction.*25006", "target_session_attrs"),
            ("SET lock_timeout = 50", "lock timeout.*55P03", "pg_locks"),
        ],
    )
    def test_a_sink_leaves_a_lasting_transient_error_to_the_restart_strategy(self, db, postgres, setting, said, fix):
        with psycopg.connect(postgres) as other, job(PostgresSink(postgres, "t", retry_seconds=0.2)) as harness:
            configured(db, setting)
            if "lock" in setting:
                other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(PostgresError, match=rf"(?s)committing epoch 1 of sink 'out'.*{said}") as caught:
                harness.run(10)
            assert caught.value.retryable
            assert fix in caught.value.fix

    def test_a_sink_is_restarted_until_a_transient_error_is_over(self, db, postgres):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        with psycopg.connect(postgres) as other:
            sink = Sometimes.cured_by(other.rollback, postgres, "t", retry_seconds=0)
            env.from_collection([(n, "x") for n in range(20)]).uid("s").sink_to(sink).uid("out")
            with JobHarness(env) as harness:
                configured(db, "SET lock_timeout = 50")
                other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
                harness.run(10)
                # One restart is due to its terminated session.
                assert harness.restarts == 2
        assert db.execute("SELECT count(*) FROM t").fetchone() == (20,)

    def test_a_dropped_table_fails_a_sink_permanently(self, db, postgres):
        with job(PostgresSink(postgres, "t")) as harness:
            harness.epoch(10)
            db.execute("DROP TABLE t")
            with pytest.raises(PostgresRefused, match=r'"public\.t" does not exist'):
                harness.run(10)

    def test_a_sink_waits_for_a_lock_at_the_start(self, db, postgres):
        """Another session has created the ledger and has not committed yet."""
        configured(db, "SET lock_timeout = 50")
        sink = PostgresSink(postgres, "t")
        connect, tries = sink._server.connect, []

        def connecting(name):
            tries.append(name)
            if len(tries) == 2:
                other.rollback()
            return connect(name)

        sink._server.connect = connecting
        with psycopg.connect(postgres) as other:
            other.execute("CREATE TABLE penstock_ledger (n int)")
            sink.start(CommitContext(uid="out", wal=WriteAheadLog(DriverStorage())))
        assert len(tries) > 1


class TestASource:
    def test_a_source_leaves_a_lasting_transient_error_to_the_restart_strategy(self, db, postgres):
        source = PostgresSource(postgres, "events", "id", retry_seconds=0.2)
        source.advance(source.start(1), None)
        configured(db, "SET lock_timeout = 50")
        with psycopg.connect(postgres) as other:
            other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(PostgresError, match="55P03") as caught:
                source.advance(source.start(1), None)
        source.close()
        assert caught.value.retryable

    def test_a_dropped_table_fails_a_source_permanently(self, db, postgres):
        source = PostgresSource(postgres, "events", "id")
        positions = source.advance(source.start(1), None)
        db.execute("DROP TABLE events")
        with pytest.raises(PostgresRefused, match="events"):
            source.advance(positions, None)
        source.close()


def test_a_session_does_not_retry_a_permanent_error(postgres):
    session = Session(PostgresEndpoint(postgres, "PostgresSink"), "penstock test")
    calls = []

    def work(connection):
        calls.append(connection)
        connection.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        session.run(work, "dividing")
    assert len(calls) == 1
    session.close()
