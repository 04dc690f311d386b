"""Commands of a Redis sink: validation and encoding for the write-ahead log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import PenstockError

# Commands that write to the single key after their name, with their minimum number of arguments.
_COMMANDS = {
    **dict.fromkeys(["DEL", "UNLINK", "PERSIST", "INCR", "DECR"], 1),
    **dict.fromkeys(["SET", "SETNX", "HDEL", "SADD", "SREM", "ZREM", "PFADD", "EXPIREAT", "PEXPIREAT"], 2),
    **dict.fromkeys(["APPEND", "RPUSH", "LPUSH", "EXPIRE", "PEXPIRE", "INCRBY", "DECRBY", "INCRBYFLOAT"], 2),
    **dict.fromkeys(["HSET", "HSETNX", "SETEX", "PSETEX", "SETRANGE", "SETBIT", "ZADD", "LREM", "LTRIM"], 3),
    **dict.fromkeys(["HINCRBY", "HINCRBYFLOAT", "ZINCRBY", "XTRIM", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"], 3),
    **dict.fromkeys(["XADD", "GEOADD"], 4),
}
_MOST_ARGUMENTS = 1000
"""A script can pass a few thousand arguments at once."""
_EXAMPLE = 'lambda order: ("HSET", f"order:{order.id}", "state", order.state)'

put_aside = msgspec.msgpack.Encoder().encode
taken_back = msgspec.msgpack.Decoder(list[list[bytes]]).decode


def commands_of(given: Any) -> Iterator[list[bytes]]:
    """Yield the commands that the program returned for a record: one, a list, or None for none."""
    if given is None:
        return
    for command in given if isinstance(given, list) else [given]:
        yield _encoded(command)


def _encoded(command: Any) -> list[bytes]:
    if not isinstance(command, tuple) or not command or not isinstance(command[0], str):
        raise PenstockError(
            f"RedisSink: the function returned {type(command).__name__}, not a command.",
            fix=f"Return a tuple, a list of tuples, or None for no command: {_EXAMPLE}.",
        )
    name = command[0].upper()
    least = _COMMANDS.get(name)
    if least is None:
        raise PenstockError(
            f"RedisSink does not support the command {command[0][:40]!r}.",
            fix=f"It supports commands that write to a single key: {', '.join(sorted(_COMMANDS))}.",
        )
    if not least < len(command) <= _MOST_ARGUMENTS:
        raise PenstockError(
            f"RedisSink: {name} with {len(command) - 1:,} arguments; expected {least} to {_MOST_ARGUMENTS - 1}.",
            fix="Pass the key, then the arguments of the command. Split a long list into several commands.",
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
        f"RedisSink: an argument of {command} is of type {kind.__name__}; Redis accepts str, bytes, int and float.",
        fix="Convert it to one of them, for example with json.dumps.",
    )
