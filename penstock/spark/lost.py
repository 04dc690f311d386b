"""Turns Spark's errors about an epoch that it could not complete into messages for the user."""

from __future__ import annotations

import re

from penstock.driver.epoch_errors import EngineLost
from penstock.graph.physical import PhysicalGraph

_WORKER_ENDED = "Python worker exited unexpectedly"
_CALLING = re.compile(r"\AAn error occurred while calling \S+\.\n: ")
"""Py4J's prefix to a JVM exception: the object, whose number differs each time, and its method."""
_TASK = re.compile(r"Task (\d+) in stage (\d+)\.\d+ failed")


def lost(error: Exception, graph: PhysicalGraph, stages: list[int]) -> EngineLost:
    """Describe a lost epoch. `stages`: the IDs of the epoch's Spark stages, one for each level of the graph."""
    text = str(error)
    if _WORKER_ENDED not in text:
        return EngineLost(brief(error))
    return EngineLost(
        f"A Python worker of Spark exited while it ran {_where(text, graph, stages)}, without reporting an error.",
        fix="Check that code for calls of os._exit() and for native libraries that crash. If the kernel killed the "
        "worker because memory ran out, dmesg shows it.",
    )


def _where(text: str, graph: PhysicalGraph, stages: list[int]) -> str:
    found = _TASK.search(text)
    if found is None or int(found[2]) not in stages or len(stages) != len(graph.levels):
        return "a task"
    level = stages.index(int(found[2]))
    if level:
        chain, subtask = graph.at_target(level, int(found[1]))
        return f"subtask {subtask} of {chain.name}"
    return " or ".join(chain.name for chain in graph.sources())


def brief(error: Exception) -> str:
    """Return a Spark error without its JVM frames. For a Python worker's error, return the exception only."""
    text = _CALLING.sub("", str(error))
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    for index, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            # Frames are indented; the first line that is not indented names the exception.
            after = [last for last in lines[index + 1 :] if not last.startswith(" ")]
            return "\n".join(after[:3])
    return "\n".join(lines[:4]) or type(error).__name__
