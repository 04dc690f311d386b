"""SQL over the state of a running job."""

import json
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.query.errors import BadRequest
from penstock.query.sql import SqlUnavailable, connect_duckdb


def test_states_are_tables_of_one_checkpoint(job, serve, client):
    job.run(("ann", 3), ("bob", 1), ("ann", 4))
    serve(job)
    with connect_duckdb(client, "job0") as database:
        assert (database.checkpoint, "the value" in database.names) == (1, True)
        assert database.sql('select key, value from "the value" order by key').fetchall() == [("ann", 4), ("bob", 1)]
        job.run(("ann", 100))
        assert client.get("job0", "the value", "ann", at_least=2) == 100
        joined = (
            'select v.key, v.value, r.value from "the value" v join "the reducing" r using (key) where key = \'ann\''
        )
        assert database.sql(joined).fetchall() == [("ann", 4, 7)]
        assert database.sql('select count(*) from "the map" a, "the map" b').fetchall() == [(9,)]
        with pytest.raises(BadRequest, match="The tables are the aggregating, the list"):
            database.sql("select * from nothing")
        with pytest.raises(BadRequest):
            database.sql("selekt")


def test_the_command_prints_rows(job, serve, settings):
    job.run(("ann", 3), ("bob", 1))
    serve(job)
    port, token = settings["queryable-state.proxy.ports"], settings["queryable-state.auth.token-file"]
    where = ["--port", port, "--token-file", token]
    query = 'select key, value from "the value" order by key'
    done = CliRunner().invoke(app, ["sql", "job0", query, "--json", *where])
    assert [json.loads(line) for line in done.output.splitlines()] == [
        {"key": "ann", "value": 3},
        {"key": "bob", "value": 1},
    ]
    done = CliRunner().invoke(app, ["sql", "job0", query, *where])
    assert "ann" in done.output
    assert done.output.endswith("Checkpoint 1.\n")
    done = CliRunner().invoke(app, ["sql", "job0", "select", *where])
    assert done.exit_code == 1


def test_the_error_for_a_missing_duckdb_names_the_package(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SqlUnavailable, match=r"pip install 'penstock\[sql\]'"), connect_duckdb(client, "job0"):
        pass
