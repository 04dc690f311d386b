"""A program as the test harness runs it: in this process, without submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.common.configuration import Configuration
from penstock.common.options import check_values
from penstock.common.options.program import AUTO_WATERMARK_INTERVAL, MAX_PARALLELISM, PARALLELISM
from penstock.common.options.query import QUERYABLE_STATE
from penstock.connectors.sink import Sink
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.driver.queryable import check_queryable
from penstock.graph.builder import build
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph


class LocalProgram(NamedTuple):
    """The graphs and settings of a program."""

    logical: LogicalGraph
    physical: PhysicalGraph
    configuration: Configuration
    batch: bool
    """Whether the program runs in BATCH mode."""


def local_program(
    program: DataStream | StreamExecutionEnvironment,
    sink: Sink,
    *,
    parallelism: int | None,
    max_parallelism: int | None,
    own_modules: Sequence[str],
) -> LocalProgram:
    """Build the program of an environment, or of a stream whose records go to ``sink``.

    The program's own parallelism applies unless one is given. ``own_modules`` are shipped to tasks by value.
    """
    env = program if isinstance(program, StreamExecutionEnvironment) else program.get_execution_environment()
    if isinstance(program, DataStream):
        program._end("Collect", sink)
    config = env.get_configuration()
    check_values(config.to_dict())
    batch = env._is_batch()
    physical = build(
        env._graph,
        parallelism or config.get(PARALLELISM) or 1,
        max_parallelism or config.get(MAX_PARALLELISM),
        env.is_chaining_enabled(),
        env.get_config().get_global_job_parameters(),
        batch=batch,
        own_modules=own_modules,
        periodic_watermarks=config.get(AUTO_WATERMARK_INTERVAL) > 0,
    )
    check_queryable(env._graph, config.get(QUERYABLE_STATE))
    return LocalProgram(env._graph, physical, config, batch)
