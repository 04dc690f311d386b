"""The DataStream API, with PyFlink's names and behavior."""

from penstock.absent import explain_absent
from penstock.common.job_client import JobClient
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.broadcast import BroadcastConnectedStream, BroadcastStream
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.connected import ConnectedStreams
from penstock.datastream.data_stream import CloseableIterator, DataStream, DataStreamSink, KeyedStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
)
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    Function,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    ListCheckpointed,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    WindowFunction,
)
from penstock.datastream.iterations import Superstep, iterate_bounded
from penstock.datastream.job_listeners import JobListener
from penstock.datastream.joins import IntervalJoin, IntervalJoined
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from penstock.datastream.state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
)
from penstock.datastream.time_characteristic import TimeCharacteristic
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.datastream.window import (
    CountWindow,
    GlobalWindow,
    MergingWindowAssigner,
    TimeWindow,
    Trigger,
    TriggerResult,
    Window,
    WindowAssigner,
)
from penstock.datastream.window_joins import CoGroupedStreams, JoinedStreams
from penstock.datastream.windowed import AllWindowedStream, WindowedStream
from penstock.savepoint.restoring import RecoveryClaimMode
from penstock.tables.savepoint import Savepoint

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "GlobalWindow",
    "HashMapStateBackend",
    "IntervalJoin",
    "IntervalJoined",
    "JobClient",
    "JobListener",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListCheckpointed",
    "MapFunction",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "RecoveryClaimMode",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Savepoint",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "Superstep",
    "TimeCharacteristic",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "TwoPhaseCommitSinkFunction",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "iterate_bounded",
]

explain_absent(__name__)
