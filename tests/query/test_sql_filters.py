"""SQL reads only the keys that a query asks for, and its results are those of the complete tables."""

import json
import random

import pytest
from query_jobs import EveryKind, divided, environment
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.query.reads import Reads
from penstock.query.sql import connect_duckdb
from penstock.query.sql_filters import keys_of, restricted_tables
from penstock.tables import Savepoint
from penstock.tables.contents import KeyedContent
from penstock.tables.keys import key_shape
from penstock.testing import JobHarness

duckdb = pytest.importorskip("duckdb")


def restricted(query):
    found = restricted_tables(duckdb.connect(), query)
    return {name: None if keys is None else [literal.text for literal in keys] for name, keys in found.items()}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from t where key = 'a'", {"t": ["a"]}),
        ("select * from T where KEY = 'a' and value > 1", {"t": ["a"]}),
        ("from t where 5 = key", {"t": ["5"]}),
        ("select * from t x where x.key in ('a', 'b')", {"t": ["a", "b"]}),
        ("select * from t where (key in ('a', 'b') and value = 1) and key = 'b'", {"t": ["b"]}),
        ("select * from t join u using (key) where key = 'a'", {"t": ["a"], "u": ["a"]}),
        ("select * from t left join u on t.key = u.key where t.key = 'a'", {"t": ["a"], "u": None}),
        ("select * from t full join u on t.key = u.key where u.key = 'a'", {"t": None, "u": ["a"]}),
        ("select * from t a, t b where a.key = 'a' and b.key = 'b'", {"t": ["a", "b"]}),
        ("select * from t a, t b where a.key = 'a'", {"t": None}),
        ("select * from t where key = 'a' union all select * from t where key = 'b'", {"t": ["a", "b"]}),
        ("select * from t where key = 'a' union all select * from t", {"t": None}),
        ("select * from (select * from t where key = 'a') s where value = 1", {"t": ["a"]}),
        ("select (select max(value) from u), * from t where key = 'a'", {"t": ["a"], "u": None}),
        ("select * from t where key = 'a' and exists (select * from t)", {"t": None}),
        ("with s as (select * from t where key = 'a') select * from s", {"t": ["a"], "s": None}),
        ("with t as (select 1 as key) select * from t where key = 'a'", {"t": None}),
        ("select * from t where key = 'a' or value = 1", {"t": None}),
        ("select * from t where not key = 'a'", {"t": None}),
        ("select * from t where key not in ('a')", {"t": None}),
        ("select * from t where key in ('a', value)", {"t": None}),
        ("select * from t where key = lower('A')", {"t": None}),
        ("select * from t where value = 'a'", {"t": None}),
        ("select * from t, u where key = 'a'", {"t": None, "u": None}),
        ("select * from t left join u using (key) where key = 'a'", {"t": None, "u": None}),
        ("select * from t positional join u where t.key = 'a'", {"t": None, "u": None}),
        ("select * from t asof join u on t.value >= u.value where u.key = 'a'", {"t": None, "u": None}),
        ("select * from t tablesample 1 rows where key = 'a'", {"t": None}),
        ("select * from t s(value, key) where key = 'a'", {"t": None}),
        ("select * from t having key = 'a'", {"t": None}),
        ("select * from t group by all having max(key) = 'a'", {"t": None}),
        ("select 1", {}),
        ("selekt", {}),
        ("create table x (key int)", {}),
    ],
)
def test_the_keys_of_a_query(query, expected):
    assert restricted(query) == expected


@pytest.mark.parametrize(
    ("constants", "key", "expected"),
    [
        ("'a', 'b'", "x", ["a", "b"]),
        ("'a'", 5, None),
        ("5, -7", 1, [5, -7]),
        ("5", "x", None),
        ("5", True, None),
        ("true", True, [True]),
        ("1", 1.0, None),
        ("1.0", 1, None),
        ("null", "x", None),
        ("9223372036854775808", 1, None),
    ],
)
def test_a_constant_of_another_type_than_the_keys_restricts_nothing(constants, key, expected):
    literals = restricted_tables(duckdb.connect(), f"select * from t where key in ({constants})")["t"]
    assert literals is None or keys_of(literals, key_shape([key])) == expected
    assert literals is not None or expected is None


@pytest.fixture
def rows_sent(monkeypatch):
    """The number of rows of each state that servers have sent."""
    sent = {}
    scan = Reads.scan

    def counted(self, readable, name, *arguments):
        schema, batches = scan(self, readable, name, *arguments)

        def counting():
            for batch in batches:
                sent[name] = sent.get(name, 0) + batch.num_rows
                yield batch

        return schema, counting()

    monkeypatch.setattr(Reads, "scan", counted)
    return sent


QUERIES = [
    "select * from \"the value\" where key = 'k7' order by all",
    "select * from \"the list\" where key in ('k1', 'k2', 'none') order by all",
    'select * from "the value" v join "the map" m using (key) where key = \'k3\' order by all',
    'select v.key, map_key from "the value" v left join "the map" m on v.key = m.key where v.key in (\'k3\')',
    "select count(*) from \"the reducing\" where key = 'none'",
]


def test_the_server_sends_only_the_rows_of_the_keys_in_the_filter(job, serve, client, rows_sent):
    job.run(*((f"k{number}", number) for number in range(300)))
    serve(job)
    with connect_duckdb(client, "job0") as database:
        assert database.sql(QUERIES[0]).fetchall() == [("k7", 7)]
        assert rows_sent == {"the value": 1}
        found = database.sql("select key, value from \"the value\" where key in ('k1', 'k2')")
        # Read after another query on other keys.
        other = database.sql("select value from \"the value\" where key = 'k9'")
        assert sorted(found.fetchall()) == [("k1", 1), ("k2", 2)]
        assert other.fetchall() == [(9,)]
        assert rows_sent == {"the value": 4}
        assert database.sql('select count(*) from "the value"').fetchall() == [(300,)]
        assert rows_sent == {"the value": 304}
        # The complete state is here now.
        assert database.sql(QUERIES[0]).fetchall() == [("k7", 7)]
        assert rows_sent == {"the value": 304}


def test_the_servers_of_a_divided_job_send_only_the_rows_of_the_keys_in_the_filter(job, serve, client, rows_sent):
    job.run(*((f"k{number}", number) for number in range(300)))
    divided([serve(job), serve(job)])
    with connect_duckdb(client, "job0") as database:
        query = "select key, value from \"the value\" where key in ('k1', 'k2', 'k3', 'k4', 'k5') order by all"
        assert database.sql(query).fetchall() == [(f"k{number}", number) for number in range(1, 6)]
    assert rows_sent == {"the value": 5}


def test_results_are_those_of_the_complete_tables(job, serve, client):
    rng = random.Random(3)
    job.run(*((f"k{rng.randrange(40)}", rng.randrange(50)) for _ in range(200)))
    serve(job)
    with connect_duckdb(client, "job0") as restricted_tables, connect_duckdb(client, "job0") as complete:
        for name in complete.names:
            complete.sql(f'select count(*) from "{name}"').fetchall()
        for query in QUERIES:
            assert restricted_tables.sql(query).fetchall() == complete.sql(query).fetchall()


def test_a_query_that_names_a_temporary_table_reads_the_complete_state(job, serve, client):
    job.run(("ann", 3), ("bob", 1))
    serve(job)
    with connect_duckdb(client, "job0") as database:
        database.sql("create temporary table chosen as select 'ann' as key")
        query = "select value from \"the value\" v, chosen c where v.key = 'ann' and c.key = v.key"
        assert database.sql(query).fetchall() == [(3,)]


@pytest.fixture
def savepoint(tmp_path):
    stream = environment().from_collection([]).uid("orders").key_by(lambda record: record[0])
    with JobHarness(stream.process(EveryKind()).uid("kinds"), backend="filesystem", max_parallelism=32) as job:
        job.push(*((f"k{number}", number) for number in range(100))).epoch()
        return Savepoint.load(job.savepoint(tmp_path))


def test_a_savepoint_is_queried_by_queryable_name_by_uid_and_by_state(savepoint):
    with connect_duckdb(savepoint) as database:
        assert database.checkpoint == 1
        for name in ("the value", "kinds.value", "value"):
            assert database.sql(f'select count(*) from "{name}"').fetchall() == [(100,)]


def test_the_command_queries_a_path(savepoint):
    query = "select key, value from \"kinds.value\" where key in ('k7', 'k8') order by key"
    done = CliRunner().invoke(app, ["sql", savepoint.path, query, "--json"])
    assert [json.loads(line) for line in done.output.splitlines()] == [
        {"key": "k7", "value": 7},
        {"key": "k8", "value": 8},
    ]


def test_a_query_of_one_key_reads_its_key_group_of_a_savepoint(savepoint, monkeypatch):
    groups = []
    entries = KeyedContent.entries

    def counted(self, part, wanted=None):
        groups.append(wanted)
        return entries(self, part, wanted)

    monkeypatch.setattr(KeyedContent, "entries", counted)
    with connect_duckdb(savepoint) as database:
        for query in QUERIES[:2]:
            assert database.sql(query).fetchall()
    assert groups
    assert all(wanted is not None and len(wanted) == 1 for wanted in groups)
