"""Facts about a process that are too large for a snapshot: its environment and its threads, on demand."""

from __future__ import annotations

import platform
import sys
import threading
import traceback

import msgspec


class Environment(msgspec.Struct, frozen=True, kw_only=True, tag="environment"):
    """The environment of a JobManager or Dispatcher."""

    python: str
    jvm: str = ""
    """Version of the JVM; empty without one."""
    architecture: str
    options: list[str] = []
    """Options of the JVM, with secrets masked."""
    classpath: list[str] = []
    """Python's module path, then the JVM's class path."""


class ThreadFrames(msgspec.Struct, frozen=True, kw_only=True):
    """One thread and the calls that it is in."""

    name: str
    frames: str


class ThreadDump(msgspec.Struct, frozen=True, kw_only=True, tag="thread-dump"):
    """The threads of a process at one moment."""

    threads: list[ThreadFrames]


def python_environment() -> Environment:
    """Return the environment of this process, without a JVM."""
    return Environment(
        python=f"Python {platform.python_version()} ({platform.python_implementation()})",
        architecture=platform.machine(),
        classpath=list(sys.path),
    )


def thread_dump() -> ThreadDump:
    """Return the Python threads of this process."""
    frames = sys._current_frames()
    threads = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or -1)
        calls = "" if frame is None else "".join(traceback.format_stack(frame))
        daemon = " daemon" if thread.daemon else ""
        threads.append(ThreadFrames(name=thread.name, frames=f'"{thread.name}"{daemon} id={thread.ident}\n{calls}'))
    return ThreadDump(threads=threads)
