"""Commands that a sink sends to Redis, as the program gives them and as they are put aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import PenstockError

# Commands that write to the one key behind their name, with how many arguments they have at least.
_COMMANDS = {
    **dict.fromkeys(["DEL", "UNLINK", "PERSIST", "INCR", "DECR"], 1),
    **dict.fromkeys(["SET", "SETNX", "HDEL", "SADD", "SREM", "ZREM", "PFADD", "EXPIREAT", "PEXPIREAT"], 2),
    **dict.fromkeys(["APPEND", "RPUSH", "LPUSH", "EXPIRE", "PEXPIRE", "INCRBY", "DECRBY", "INCRBYFLOAT"], 2),
    **dict.fromkeys(["HSET", "HSETNX", "SETEX", "PSETEX", "SETRANGE", "SETBIT", "ZADD", "LREM", "LTRIM"], 3),
    **dict.fromkeys(["HINCRBY", "HINCRBYFLOAT", "ZINCRBY", "XTRIM", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"], 3),
    **dict.fromkeys(["XADD", "GEOADD"], 4),
}
_MOST_ARGUMENTS = 1000
"""A script can hand on a few thousand arguments at once."""
_EXAMPLE = 'lambda order: ("HSET", f"order:{order.id}", "state", order.state)'

put_aside = msgspec.msgpack.Encoder().encode
taken_back = msgspec.msgpack.Decoder(list[list[bytes]]).decode


def commands_of(given: Any) -> Iterator[list[bytes]]:
    """What the program gave for a record: a command, a list of them, or None for nothing."""
    if given is None:
        return
    for command in given if isinstance(given, list) else [given]:
        yield _encoded(command)


def _encoded(command: Any) -> list[bytes]:
    if not isinstance(command, tuple) or not command or not isinstance(command[0], str):
        raise PenstockError(
            f"RedisSink: the function gave {type(command).__name__}, which is no command.",
            fix=f"Let it give a tuple, a list of tuples, or None for nothing: {_EXAMPLE}.",
        )
    name = command[0].upper()
    least = _COMMANDS.get(name)
    if least is None:
        raise PenstockError(
            f"RedisSink does not send the command {command[0][:40]!r}.",
            fix=f"It sends those that write to one key: {', '.join(sorted(_COMMANDS))}.",
        )
    if not least < len(command) <= _MOST_ARGUMENTS:
        raise PenstockError(
            f"RedisSink: {name} with {len(command) - 1:,} arguments; it takes {least} to {_MOST_ARGUMENTS - 1}.",
            fix="Give the key, then what the command needs; of a long list make several commands.",
        )
    return [name.encode(), *[_argument(name, each) for each in command[1:]]]


def _argument(command: str, value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        return str.encode(value)
    if kind is bytes:
        return bytes(value)
    if kind is int or kind is float:
        return repr(value).encode()
    raise PenstockError(
        f"RedisSink: an argument of {command} is of type {kind.__name__}; Redis takes str, bytes, int and float.",
        fix="Turn it into one of them, for instance with json.dumps.",
    )
