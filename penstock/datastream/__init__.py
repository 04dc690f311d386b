"""The DataStream API. Names and behaviour are PyFlink's."""

from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.data_stream import CloseableIterator, DataStream, DataStreamSink, KeyedStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.job_client import JobClient
from penstock.datastream.state_backend import FsStateBackend, MemoryStateBackend, StateBackend

__all__ = [
    "AggregateFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "JobClient",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemoryStateBackend",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "StateBackend",
    "StreamExecutionEnvironment",
]
