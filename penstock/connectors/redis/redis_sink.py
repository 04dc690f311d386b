"""RedisSink: sends the commands of an epoch when its checkpoint is complete, each with an exactly-once effect.

Writers log commands (`connectors/write_ahead.py`). The driver sends them in chunks. Each chunk is one script, which
also records its progress in a ledger, a hash in the same Redis. Redis runs a script in isolation and keeps all of its
effects or none, so sending a chunk again after any failure changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from xxhash import xxh3_64_hexdigest

from penstock.connectors.redis.commands import commands_of, put_aside, taken_back
from penstock.connectors.redis.server import (
    DEFAULT_RETRY,
    RedisEndpoint,
    RedisRefused,
    RetryTime,
    client_library,
    is_for_now,
)
from penstock.connectors.sink import EXACTLY_ONCE, Sink, SinkWriter
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

_CHUNK_COMMANDS = 500
_CHUNK_BYTES = 256 << 10
"""A chunk is closed at either limit: Redis serves no other client while its script runs."""
_AT_ONCE = 8
"""Chunks in flight before an answer is awaited, so that Redis writes its log once for all of them."""

# The ledger holds `epoch:attempt:chunks:commands` for each subtask: these chunks are done, and `commands` commands of
# the next one. The last number is above 0 only after a command has failed.
_APPLY = """
local field, epoch, attempt, number, known = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local function note(chunks, commands)
  redis.call('HSET', KEYS[1], field, epoch .. ':' .. attempt .. ':' .. chunks .. ':' .. commands)
end
local last, whose, chunks, commands = 0, attempt, 0, 0
local held = redis.call('HGET', KEYS[1], field)
if held then
  local a, b, c, d = string.match(held, '^(%d+):(%x*):(%d+):(%d+)$')
  last, whose, chunks, commands = tonumber(a), b, tonumber(c), tonumber(d)
end
if last > epoch then return {'newer'} end
if last < known then return {'lost', last} end
if last < epoch then whose, chunks, commands = attempt, 0, 0 end
if whose ~= attempt then return {'other'} end
if chunks > number then return {'done'} end
if chunks < number then return {'lost', last} end
local at, count = 6, 0
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  count = count + 1
  if count > commands then
    local answer = redis.pcall(unpack(ARGV, at + 1, at + size))
    if type(answer) == 'table' and answer.err then
      if count - 1 > commands then note(number, count - 1) end
      return {'failed', count - 1, answer.err}
    end
  end
  at = at + size + 1
end
note(number + 1, 0)
return {'done'}
"""


class RedisSink(Sink):
    """Send the commands that ``command(record)`` returns: a tuple such as ``("SET", key, value)``, a list, or None.

    All commands that write to a single key are supported, including non-idempotent ones (XADD, RPUSH, INCRBY). The
    commands of one subtask are sent in order, so call ``key_by`` with the part of the record that determines the Redis
    key before the sink.

    Args:
        url: The server, as ``redis://[user[:password]@]host[:port][/database]``, ``rediss://...`` or ``unix:///path``.
        command: Returns the commands for a record.
        password: Password of the server, instead of in the URL.
        ledger: Prefix of the keys in which the sink records its progress.
        retry_for: How long to retry while the server is unavailable.
    """

    guarantee = EXACTLY_ONCE
    why = (
        "Redis records the progress together with the commands; additive commands (XADD, RPUSH, INCRBY) are applied "
        "once as long as Redis keeps acknowledged writes (appendonly yes, appendfsync always)"
    )
    concurrent_commit = True

    def __init__(
        self,
        url: str,
        command: Callable[[Any], Any],
        *,
        password: str | None = None,
        ledger: str = "penstock:ledger",
        retry_for: RetryTime = DEFAULT_RETRY,
    ) -> None:
        if not callable(command):
            raise PenstockError(f"RedisSink needs a function of a record, not {type(command).__name__}.")
        self._server = RedisEndpoint("RedisSink", url, password, retry_for)
        self._command = command
        self._ledger = ledger
        self._known: dict[tuple[str, str, int], int] = {}
        """By uid, lineage and subtask, in the driver: the last epoch seen in the ledger."""

    def __repr__(self) -> str:
        return f"RedisSink({self._server.name})"

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _CommandWriter(context, self._command)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        self._server.party = f"RedisSink '{context.uid}'"
        for commit in commits:
            chunks = enumerate(written_ahead(commit, context))
            while some := list(islice(chunks, _AT_ONCE)):
                questions = [self._question(commit, context, number, taken_back(chunk)) for number, chunk in some]
                if not self._send(commit, context, questions):
                    break
            name = context.uid, commit.lineage, commit.subtask
            self._known[name] = max(commit.epoch, self._known.get(name, 0))

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        self._server.close()

    def _question(self, commit: Commit, context: CommitContext, number: int, commands: list[list[bytes]]) -> list[Any]:
        """Return the arguments of the script."""
        known = self._known.get((context.uid, commit.lineage, commit.subtask), 0)
        attempt = xxh3_64_hexdigest(commit.payload)
        return [commit.subtask, commit.epoch, attempt, number, known, *_flat(commands)]

    def _send(self, commit: Commit, context: CommitContext, questions: list[list[Any]]) -> bool:
        """Send chunks. Return False if a later driver has already sent them."""
        ledger = f"{self._ledger}:{commit.lineage}:{context.uid}"
        answers = self._server.ask(partial(_apply, ledger, questions), f"the ledger '{ledger}'")
        for answer, question in zip(answers, questions):
            if answer[0] == b"newer":
                return False
            if answer[0] != b"done":
                raise self._failure(answer, question, commit, ledger)
        return True

    def _failure(self, answer: list[Any], question: list[Any], commit: Commit, ledger: str) -> PenstockError:
        where = f"{self._server.party}: Redis at {self._server.name}"
        if answer[0] == b"failed":
            command, key = _command_at(question, answer[1])
            return self._server.refusal(answer[2].decode(errors="replace"), f"{command} of key '{key}'")
        if answer[0] == b"lost":
            return RedisRefused(
                f"{where} has lost acknowledged writes: it had the output of subtask {commit.subtask} up to epoch "
                f"{question[4] or commit.epoch}, but its ledger '{ledger}' is at {answer[1]}.",
                fix="Make Redis persist acknowledged writes (appendonly yes, appendfsync always). Restore its data and "
                "start the job from a savepoint of that time, or restart the job to continue without the lost writes.",
            )
        return RedisRefused(
            f"{where} holds partial output of another run of epoch {commit.epoch} of subtask {commit.subtask} "
            f"(ledger '{ledger}'): a batch job that fails while writing cannot be repeated.",
            fix="Delete that key and the output of the batch job, or use RuntimeExecutionMode.STREAMING.",
        )


class _CommandWriter(SinkWriter):
    def __init__(self, context: RuntimeContext, command: Callable[[Any], Any]) -> None:
        self._command = command
        self._log = WriteAhead(context)
        self._waiting: list[list[bytes]] = []
        self._bytes = 0

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._log.begin(epoch)
        self._waiting, self._bytes = [], 0

    def write(self, value: Any) -> None:
        for command in commands_of(self._command(value)):
            self._waiting.append(command)
            self._bytes += sum(map(len, command))
            if len(self._waiting) >= _CHUNK_COMMANDS or self._bytes >= _CHUNK_BYTES:
                self._put_aside()

    def prepare_commit(self) -> bytes | None:
        if self._waiting:
            self._put_aside()
        return self._log.seal()

    def _put_aside(self) -> None:
        self._log.add(put_aside(self._waiting))
        self._waiting, self._bytes = [], 0


def _apply(ledger: str, questions: list[list[Any]], client: Any) -> Any:
    pipeline = client.pipeline(transaction=False)
    script = client.register_script(_APPLY)
    for question in questions:
        script(keys=[ledger], args=question, client=pipeline)
    answers = pipeline.execute(raise_on_error=False)
    for answer, question in zip(answers, questions):
        if isinstance(answer, Exception):
            raise answer
        if answer[0] == b"failed" and is_for_now(answer[2].decode(errors="replace")):
            # The script returned the error instead of raising it. The retry resumes after the recorded progress.
            error = client_library("RedisSink").exceptions.ResponseError(answer[2].decode(errors="replace"))
            command, key = _command_at(question, answer[1])
            error.about = f"{command} of key '{key}'"
            raise error
    return answers


def _flat(commands: list[list[bytes]]) -> Iterator[Any]:
    for command in commands:
        yield len(command)
        yield from command


def _command_at(question: list[Any], number: int) -> tuple[str, str]:
    """Return the name and key of a command in the script's arguments."""
    at = 5
    for _ in range(number):
        at += question[at] + 1
    return question[at + 1].decode(), question[at + 2].decode(errors="replace")
