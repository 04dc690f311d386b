"""The DataStream API. Names and behaviour are PyFlink's."""

from penstock.absent import explain_absent
from penstock.common.job_client import JobClient
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.connected import ConnectedStreams
from penstock.datastream.data_stream import CloseableIterator, DataStream, DataStreamSink, KeyedStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    Function,
    JoinFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state_backend import FsStateBackend, MemoryStateBackend, StateBackend

__all__ = [
    "AggregateFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "JobClient",
    "JoinFunction",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemoryStateBackend",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
]

explain_absent(__name__)
