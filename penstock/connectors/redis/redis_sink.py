"""RedisSink: the commands of an epoch, sent when its checkpoint is complete, each with the effect of once.

Writers put commands aside (`connectors/write_ahead.py`). The driver sends them in chunks; each is one script, which
also notes in a ledger, a hash of the same Redis, how far it came. Redis runs a script without anything in between, and
keeps all of its effects or none. So whoever sends a chunk again, after whatever failure, changes nothing.
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
"""A chunk is closed at either: while its script runs, nobody else is served."""
_AT_ONCE = 8
"""Chunks on the way before an answer is awaited: Redis then writes its log once for all of them."""

# The ledger has for each subtask `epoch:attempt:chunks:commands`: all of these chunks are done, and so many commands
# of the next one. Only a command that fails leaves the last number above 0.
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
    """Sends what `command(record)` gives: a tuple such as `("SET", key, value)`, a list of tuples, or None.

    Commands that write to one key can be sent, those that add to it (XADD, RPUSH, INCRBY) as well as those that may be
    repeated (SET, HSET). Of one subtask they are sent in order, so `key_by` what the key is made of before the sink.
    `ledger`: what the names of its own keys begin with. `retry_for`: how long a server is tried.
    """

    guarantee = EXACTLY_ONCE
    why = (
        "Redis notes with the commands how far they were sent; what only adds (XADD, RPUSH, INCRBY) is there once as "
        "long as Redis keeps what it acknowledged (appendonly yes, appendfsync always)"
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
        """In the driver, by uid, lineage and subtask: the last epoch that it saw in the ledger."""

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
        """The arguments of the script."""
        known = self._known.get((context.uid, commit.lineage, commit.subtask), 0)
        attempt = xxh3_64_hexdigest(commit.payload)
        return [commit.subtask, commit.epoch, attempt, number, known, *_flat(commands)]

    def _send(self, commit: Commit, context: CommitContext, questions: list[list[Any]]) -> bool:
        """Whether there is more to do: no, where a later driver has done it."""
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
                f"{where} has lost what it acknowledged: it had output of subtask {commit.subtask} up to epoch "
                f"{question[4] or commit.epoch}, and its ledger '{ledger}' says {answer[1]}.",
                fix="Let Redis keep what it acknowledges (appendonly yes, appendfsync always). Restore its data, and "
                "start the job from a savepoint of that time; or start the job again, to go on without what is lost.",
            )
        return RedisRefused(
            f"{where} has a part of the output of another run of epoch {commit.epoch} of subtask {commit.subtask} "
            f"(ledger '{ledger}'): a batch that fails while it writes cannot be repeated.",
            fix="Remove that key and what the batch wrote, or run the job with RuntimeExecutionMode.STREAMING.",
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
            # The script has caught it. It goes on behind what it has noted.
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
    """Name and key of a command among the script's arguments."""
    at = 5
    for _ in range(number):
        at += question[at] + 1
    return question[at + 1].decode(), question[at + 2].decode(errors="replace")
