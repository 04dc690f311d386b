"""PostgresSink: the records of an epoch and the note that they are there are one transaction."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.fields import values_of
from penstock.common.row import Row, RowKind, kind_of
from penstock.connectors.postgres.connection import (
    RETRY_SECONDS,
    Conninfo,
    PostgresEndpoint,
    PostgresError,
    PostgresRefused,
    Result,
    Session,
    driver,
    failure,
    said,
    sql,
)
from penstock.connectors.postgres.encoding import FORMAT, RowEncoder, record_at
from penstock.connectors.postgres.ledger import Ledger
from penstock.connectors.postgres.sqlstates import passes
from penstock.connectors.postgres.table import check_names
from penstock.connectors.postgres.target import PostgresTarget, find_target
from penstock.connectors.sink import EXACTLY_ONCE, Sink, SinkWriter
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

if TYPE_CHECKING:
    import psycopg

_WHO = "PostgresSink"
_BATCH = 500
"""Records that are encoded together: 0.3 µs each; with 2,000, which the processor's caches do not hold, 0.4 µs."""
_KEYS = 50_000
"""Keys whose last record a task remembers."""
_CHUNK = 1 << 16
"""Bytes that are put aside, and sent, together."""
_COPY = "COPY {table} ({columns}) FROM STDIN (" + FORMAT + ")"
_STAGE = "CREATE TEMP TABLE {staged} ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA"
_NUMBER = "ALTER TABLE {staged} ADD COLUMN {order} bigint GENERATED ALWAYS AS IDENTITY"
_STAGED, _ORDER = "penstock_epoch", "penstock_order"
_LATEST = """
INSERT INTO {table} ({columns})
SELECT {columns} FROM (SELECT DISTINCT ON ({key}) * FROM {staged} ORDER BY {key}, {order} DESC) AS latest
ON CONFLICT ({key}) DO
"""


class PostgresSink(Sink):
    """Adds every record to a table as a row; with `key`, a record takes the place of the row with the same key.

    Records are Rows, dicts, tuples, dataclasses or any objects with the columns' names; tuples have the values in the
    order of `columns`. These are, if they are not given, the fields of the stream's declared type, or all columns that
    the server does not fill alone. Of several records of an epoch with one key the last one stays: the last of its
    subtask, and where two subtasks have the same key, of the higher subtask.
    """

    guarantee = EXACTLY_ONCE
    why = "an epoch's rows and its number are written in one transaction of the database"
    concurrent_commit = True

    def __init__(
        self,
        connection: Conninfo,
        table: str,
        *,
        columns: Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._server = PostgresEndpoint(connection, _WHO, retry_seconds)
        self._name = table
        self._columns = check_names(columns, "PostgresSink: columns")
        self._key = check_names(key, "PostgresSink: key")
        self._value_type: Any = None
        self._begin()

    def _begin(self) -> None:
        self._session = Session(self._server, "penstock sink")
        self._found: PostgresTarget | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_session", "_found")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"PostgresSink(table '{self._name}' in {self._server!r})"

    def for_type(self, value_type: Any) -> PostgresSink:
        typed = copy.copy(self)
        typed._value_type = value_type
        return typed

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        # A failure in a task is told with the operator's name and uid.
        try:
            target = self._look(lambda connection: self._target(connection, _WHO), _WHO)
        finally:
            self._session.close()
        return (_RowWriter if target.key is None else _LatestWriter)(target, WriteAhead(context))

    # -- in the driver ---------------------------------------------------------------------------------------------

    def start(self, context: CommitContext) -> None:
        who = _who(context)

        def look(connection: psycopg.Connection[Any]) -> None:
            self._found = self._target(connection, who)
            self._ledger(self._found).create(connection, who)

        self._look(look, who)

    def _look(self, look: Callable[[psycopg.Connection[Any]], Result], who: str) -> Result:
        doing = f"looking at table '{self._name}' in {self._server!r}"
        try:
            return self._session.run(look, doing)
        except driver().Error as error:
            raise failure(error, who, doing, "See to what the server says, then start the job again.") from None

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        if self._found is None:
            self.start(context)
        target = self._found
        assert target is not None
        try:
            self._session.run(
                lambda connection: self._write(connection, target, commits, context), self._doing(commits[0], context)
            )
        except driver().Error as error:
            # The table may have been changed; if so, the next attempt sees it as it is.
            self._found = None
            raise self._refused(error, target, commits, context) from None

    def _write(
        self,
        connection: psycopg.Connection[Any],
        target: PostgresTarget,
        commits: list[Commit],
        context: CommitContext,
    ) -> None:
        """If it fails, and it is not known whether the server took it, the ledger knows."""
        first = commits[0]
        with connection.transaction():
            if not self._ledger(target).enter(connection, first.lineage, context.uid, first.epoch):
                return
            names: dict[str, Any] = {"table": target.table.names, "columns": target.names, "staged": _STAGED}
            with connection.cursor() as cursor:
                if target.key is None:
                    self._copy(cursor, sql(_COPY, **names), commits, context)
                    return
                cursor.execute(sql(_STAGE, **names))
                cursor.execute(sql(_NUMBER, staged=_STAGED, order=_ORDER))
                self._copy(cursor, sql(_COPY, table=_STAGED, columns=target.names), commits, context)
                rest = [name for name in target.names if name not in target.key]
                statement = sql(_LATEST, **names, key=target.key, order=_ORDER)
                if rest:
                    changes = [sql("{column} = EXCLUDED.{column}", column=name) for name in rest]
                    statement += sql("UPDATE SET ") + driver().sql.SQL(", ").join(changes)
                else:
                    statement += sql("NOTHING")
                cursor.execute(statement)

    def _copy(self, cursor: psycopg.Cursor[Any], statement: Any, commits: list[Commit], context: CommitContext) -> None:
        with cursor.copy(statement) as stream:
            for chunk in self._chunks(commits, context):
                stream.write(chunk)

    def _chunks(self, commits: list[Commit], context: CommitContext) -> Iterator[bytes]:
        for commit in commits:
            yield from written_ahead(commit, context)

    def _target(self, connection: psycopg.Connection[Any], who: str) -> PostgresTarget:
        where = self._server.where
        return find_target(connection, self._name, self._columns, self._key, self._value_type, who, where)

    def _ledger(self, target: PostgresTarget) -> Ledger:
        return Ledger(target.table.names[0], ".".join(target.table.names))

    def _doing(self, commit: Commit, context: CommitContext) -> str:
        return f"committing epoch {commit.epoch} of sink '{context.uid}' to table '{self._name}'"

    def _refused(
        self, error: Any, target: PostgresTarget, commits: list[Commit], context: CommitContext
    ) -> PostgresError:
        """The server does not take the epoch: which record, if it says so."""
        found = re.search(r"COPY \S+?, \D*(\d+)(?:, \S+ (.+?):)?", error.diag.context or "")
        record = record_at(int(found.group(1)), self._chunks(commits, context)) if found else []
        shown = ""
        if record:
            values = (f"{name}={text[:100]}" for name, text in zip(target.names, record))
            shown = f" The record: {', '.join(values)}."
        name = error.diag.column_name or (found and found.group(2))
        columns = [column for column in target.columns if column.name == name]
        column = f" Column '{columns[0].name}' is {columns[0].described}." if columns else ""
        detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
        # What follows from the records comes again.
        return (PostgresError if passes(error.sqlstate) else PostgresRefused)(
            f"{_who(context)}: {target.table.where} does not take epoch {commits[0].epoch}: {said(error)}{detail}."
            f"{column}{shown} Nothing of the epoch was written, and nothing is lost: it is kept with the checkpoint.",
            fix="Change the table, its constraints or triggers so that it takes the record, and start the job again: "
            "it goes on with this epoch.",
        )


def _who(context: CommitContext) -> str:
    return f"{_WHO} (uid '{context.uid}')"


class _RowWriter(SinkWriter):
    def __init__(self, target: PostgresTarget, log: WriteAhead) -> None:
        self._encoder = RowEncoder(target.table, target.columns, _WHO)
        self._values = values_of(target.names)
        self._kept = (RowKind.INSERT,) if target.key is None else (RowKind.INSERT, RowKind.UPDATE_AFTER)
        self._taken_as_is = -1 if self._encoder.mutable else len(target.columns)
        """The length of a tuple that nothing can change any more and nothing needs to be done to."""
        self._log = log
        self._rows: list[tuple[Any, ...]] = []
        self._chunk = bytearray()

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._rows, self._chunk = [], bytearray()
        self._log.begin(epoch)

    # A tuple of a text and two numbers: 0.3 µs, encoded.
    def write(self, value: Any) -> None:
        rows = self._rows
        rows.append(value if type(value) is tuple and len(value) == self._taken_as_is else self._row(value))
        if len(rows) == _BATCH:
            # Not the record to be named if one does not fit: the encoder names that one.
            del value
            self._flush()

    def _row(self, value: Any) -> tuple[Any, ...]:
        """The record's values as they are now: it may be changed afterwards."""
        if type(value) is Row and kind_of(value) not in self._kept:
            raise PenstockError(
                f"{_WHO} adds rows{' and replaces them' if len(self._kept) > 1 else ''}, and the record {value!r} "
                f"says that one is taken back.",
                fix="Leave such records out before the sink with filter(...).",
            )
        row = tuple(self._values(value))
        if not self._encoder.mutable:
            return row
        fields = list(row)
        for index in self._encoder.mutable:
            fields[index] = self._encoder.field(index, row[index], row)
        return tuple(fields)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._encode(rows)

    def _encode(self, rows: list[tuple[Any, ...]]) -> None:
        self._chunk += self._encoder.encode(rows)
        if len(self._chunk) >= _CHUNK:
            self._put_aside()

    def _put_aside(self) -> None:
        chunk, self._chunk = self._chunk, bytearray()
        self._log.add(bytes(chunk))

    def prepare_commit(self) -> bytes | None:
        self._flush()
        if self._chunk:
            self._put_aside()
        return self._log.seal()


class _LatestWriter(_RowWriter):
    """Puts aside only the last record of a key, as long as it remembers the key: the server sorts out the rest."""

    def __init__(self, target: PostgresTarget, log: WriteAhead) -> None:
        super().__init__(target, log)
        assert target.key is not None
        self._key_of = itemgetter(*map(target.names.index, target.key))
        self._latest: dict[Any, tuple[Any, ...]] = {}

    def begin_epoch(self, epoch: EpochInfo) -> None:
        super().begin_epoch(epoch)
        self._latest = {}

    def write(self, value: Any) -> None:
        row = value if type(value) is tuple and len(value) == self._taken_as_is else self._row(value)
        latest = self._latest
        latest[self._key_of(row)] = row
        if len(latest) == _KEYS:
            # As above.
            del value, row
            self._flush()

    def _flush(self) -> None:
        rows, self._latest = iter(self._latest.values()), {}
        while batch := list(islice(rows, _BATCH)):
            self._encode(batch)


__all__ = ["PostgresSink"]
