"""The environment: where a program begins, is configured, and is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.common.configuration import Configuration
from penstock.common.error_format import ShortExceptHook
from penstock.common.execution_config import ExecutionConfig
from penstock.common.interrupts import Interrupt, stop_to_resume
from penstock.common.job import JobExecutionResult
from penstock.common.local_paths import local_path
from penstock.common.names import check_job_name
from penstock.common.options import (
    BadSetting,
    canonical,
    check_keys,
    check_values,
    surrounding_settings,
)
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINTING_MODE, SAVEPOINTS_DIRECTORY
from penstock.common.options.program import (
    DEFAULT_MASTER,
    JOB_NAME,
    MAX_PARALLELISM,
    MOST_KEY_GROUPS,
    OPERATOR_CHAINING,
    PARALLELISM,
    RUNTIME_MODE,
    SEGMENT_SIZE,
)
from penstock.common.overridden import ProgramConfiguration
from penstock.common.restart_strategy import RestartStrategyConfiguration, configured_strategy
from penstock.common.type_parameters import T
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.generated import NumberSequenceSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.connectors.source import Source
from penstock.datastream.checkpoint_config import CheckpointConfig, checkpointing_mode
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.checks import as_declared, require_uids
from penstock.datastream.data_stream import DataStream
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.job_client import LocalJobClient
from penstock.datastream.launch import launch_context
from penstock.datastream.state_backend import StateBackend
from penstock.datastream.submission import submit
from penstock.driver.checkpoint_settings import checkpoint_interval
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.graph.builder import build
from penstock.graph.logical import FORWARD, GraphError, Input, LogicalGraph, Partitioning, SourceSpec, check_positive
from penstock.graph.physical import PhysicalGraph
from penstock.graph.plan_json import execution_plan
from penstock.runtime.output_tag import OutputTag

if TYPE_CHECKING:
    from penstock.spark.types import DataFrame, SparkSession


class StreamExecutionEnvironment:
    """Build a program with `from_…` and the methods of its streams; run it with `execute`."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        ShortExceptHook.install()
        program = configuration.to_dict() if configuration is not None else {}
        settings: dict[str, str] = {}
        self._launch = launch_context()
        given = self._launch.settings
        for source in (surrounding_settings(), program, given):
            check_keys(source)
            settings |= canonical(source)
        check_values(settings)
        self._given = canonical(given)
        """What the command line set."""
        self._configuration = ProgramConfiguration(settings, self._given)
        self._graph = LogicalGraph()
        self._job_parameters: dict[str, str] = {}
        self._on_epoch: list[Callable[[EpochStatistics], None]] = []
        self._spark: SparkSession | None = None
        self._session_is_the_programs = False
        """Whether the program started Spark without this environment, and so without its settings."""
        self._python_files: list[str] = []
        self._before_spark: dict[str, str] = {}
        """Methods that were called, and the settings they made, which Spark reads only when it starts."""

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return a new environment.

        Args:
            configuration: Settings of the program. Those of `penstock run -D` are stronger.
        """
        return StreamExecutionEnvironment(configuration)

    # -- configuration ---------------------------------------------------------------------------------------------

    def configure(self, configuration: Configuration) -> None:
        """Add settings to those of the environment.

        Raises:
            BadSetting: If a key is unknown, or a value is not one that the key accepts.
        """
        check_keys(configuration.key_set())
        check_values(configuration.to_dict())
        self._configuration.add_all(Configuration.from_dict(canonical(configuration.to_dict())))

    def get_configuration(self) -> Configuration:
        """Return the settings of the environment; changing them changes it."""
        return self._configuration

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks of operators without a parallelism."""
        check_positive(parallelism, "parallelism")
        self._configuration.set_integer(PARALLELISM.key, parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks of operators without a parallelism."""
        given = self._configuration.get(PARALLELISM)
        if given:
            return given
        if self._spark is not None:
            return int(self._spark.sparkContext.defaultParallelism)
        cores = re.fullmatch(
            r"local(?:\[(\*|\d+).*\])?", self._configuration.get_string("spark.master", DEFAULT_MASTER)
        )
        if cores is None:
            return int(self.spark.sparkContext.defaultParallelism)
        return os.cpu_count() or 1 if cores[1] == "*" else int(cores[1] or 1)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups: the largest parallelism that keyed state can ever have."""
        if not 1 <= max_parallelism <= MOST_KEY_GROUPS:
            raise GraphError(f"The max parallelism must be between 1 and {MOST_KEY_GROUPS}, not {max_parallelism!r}.")
        self._configuration.set_integer(MAX_PARALLELISM.key, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it follows from the parallelism."""
        return self._configuration.get(MAX_PARALLELISM) or -1

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """BATCH: keyed reduces give only the last value of each key, at the end of the input."""
        self._configuration.set_string(RUNTIME_MODE.key, execution_mode.name)
        return self

    def _is_batch(self) -> bool:
        mode = RuntimeExecutionMode[self._configuration.get(RUNTIME_MODE)]
        endless = [node for node in self._graph.nodes.values() if node.source is not None and not node.source.bounded]
        if mode is RuntimeExecutionMode.BATCH and endless:
            raise GraphError(
                f"The runtime mode is BATCH, but source '{endless[0].name}' has no end, so no result would ever come.",
                fix="Make the source bounded (from_spark(df, bounded=True)), or use RuntimeExecutionMode.STREAMING.",
                locations=(endless[0].location,),
            )
        return mode is RuntimeExecutionMode.BATCH or (mode is RuntimeExecutionMode.AUTOMATIC and not endless)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Run every operator as a task behind an exchange, instead of fusing operators into chains."""
        self._configuration.set_boolean(OPERATOR_CHAINING.key, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators are fused into chains."""
        return self._configuration.get(OPERATOR_CHAINING)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> StreamExecutionEnvironment:
        """Publish a checkpoint every `interval` milliseconds, and go on from the last one after a failure."""
        check_positive(interval, "checkpoint interval (milliseconds)")
        self._configuration.set_string(CHECKPOINT_INTERVAL.key, f"{interval} ms")
        if mode is not None:
            self._configuration.set_string(CHECKPOINTING_MODE.key, mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1 when checkpointing is off."""
        return checkpoint_interval(self._configuration)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return whether sinks commit exactly once or at least once."""
        return checkpointing_mode(self._configuration)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the same as `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def get_checkpoint_config(self) -> CheckpointConfig:
        """This environment's settings of checkpoints as an object."""
        return CheckpointConfig(self)

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """What happens when the job fails, made with `RestartStrategies`. docs/operate/recovery.md has the default."""
        self._configuration.add_all(Configuration.from_dict(restart_strategy_configuration.settings()))

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return what the job does after a failure."""
        return configured_strategy(self._configuration)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """False: a barrier closes an epoch's input, so every checkpoint is aligned, and none waits in a buffer."""
        return False

    def is_force_unaligned_checkpoints(self) -> bool:
        """False: see `is_unaligned_checkpoints_enabled`."""
        return False

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set where workers keep state while the job runs."""
        self._configuration.add_all(Configuration.from_dict(state_backend.settings()))
        return self

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Where savepoints go that are given no directory: a path, or a URI such as s3://bucket/path."""
        self._configuration.set_string(SAVEPOINTS_DIRECTORY.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory of savepoints that are made without one, or None."""
        return self._configuration.get(SAVEPOINTS_DIRECTORY) or None

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this program; started when first asked for."""
        if self._spark is None:
            from penstock.spark.session import running_session, start_session

            if running_session() is not None:
                self._refuse_other_session()
                self._session_is_the_programs = True
            values = self._configuration.to_dict()
            self._spark = start_session({key: value for key, value in values.items() if key.startswith("spark.")})
        return self._spark

    def get_config(self) -> ExecutionConfig:
        """This environment's settings as an object."""
        return ExecutionConfig(self, self._job_parameters)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """True: only an operator behind an exchange has key groups, so a max parallelism never parts a chain."""
        return True

    def add_python_file(self, file_path: str) -> None:
        """Ship a module (.py) or a package (.zip, .egg) to the workers, which can then import it."""
        path = local_path("add_python_file", file_path)
        if os.path.isdir(path):
            raise BadSetting(f"add_python_file: '{path}' is a directory, and Spark ships files: zip it.")
        if not os.path.isfile(path):
            raise BadSetting(f"add_python_file: there is no file '{path}'.")
        self._python_files.append(path)

    def set_python_executable(self, python_exec: str) -> None:
        """The interpreter of the workers: a path on the hosts where they run. Call it before Spark starts."""
        self._set_for_spark("set_python_executable", "spark.pyspark.python", python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Java archives for Spark, such as those of its connectors: paths or URLs. Call it before Spark starts."""
        from penstock.spark.start_checks import check_file

        for path in ",".join(jars_path).split(","):
            check_file("add_jars", path.strip())
        before = self._configuration.get_string("spark.jars", "")
        self._set_for_spark("add_jars", "spark.jars", ",".join([before, *jars_path] if before else jars_path))

    def _set_for_spark(self, method: str, key: str, value: str) -> None:
        if self._spark is not None:
            raise _too_late(method, key)
        self._before_spark[method] = key
        self._configuration.set_string(key, value)

    def _refuse_other_session(self) -> None:
        """A session that was not started with this environment's settings does not have those of these methods."""
        for method, key in self._before_spark.items():
            raise _too_late(method, key)

    def close(self) -> None:
        """Nothing is held that could be released: no stream is cached, and the Spark session may serve others."""

    def add_epoch_listener(self, listener: Callable[[EpochStatistics], None]) -> None:
        """Call `listener` in the driver after every epoch. What it raises fails the job.

        Sinks that commit beside the next epoch may be at it still.
        """
        self._on_epoch.append(listener)

    # -- sources ---------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[T], type_info: Any = None) -> DataStream[T]:
        """A bounded stream of the records of a list, or of any iterable."""
        records = list(collection)
        if type_info is not None:
            records = as_declared(records, type_info)
        return self._source("Collection", SourceSpec("chunks", records, bounded=True), type_info)

    def from_elements(self, *elements: T) -> DataStream[T]:
        """Return a bounded stream of these records."""
        return self.from_collection(elements)

    def from_spark(self, df: DataFrame, bounded: bool | None = None) -> DataStream:
        """Any DataFrame as a source, one Row per row.

        A batch DataFrame is bounded. A streaming one goes on until the job is cancelled, unless `bounded=True`: then
        what is there when the job starts is all.
        """
        from penstock.spark.session import check_session

        if self._spark is None:
            self._refuse_other_session()
            check_session(df.sparkSession)
            self._spark = df.sparkSession
            self._session_is_the_programs = True
        streaming = df.isStreaming
        if not streaming and bounded is False:
            raise GraphError("A batch DataFrame is always bounded; leave bounded=False out.")
        return self._source("Spark", SourceSpec("rows", df, bounded=bool(bounded) or not streaming), None)

    def from_source(
        self,
        source: Source[T],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: Any = None,
        dead_letters: OutputTag | None = None,
    ) -> DataStream[T]:
        """A source written in Python, or one that comes with Penstock: `penstock.datastream.connectors`.

        A record that it cannot decode fails the job, or goes to the side output `dead_letters`, as a `DeadLetter`: read
        it with `get_side_output`.
        """
        if not isinstance(source, Source):
            raise GraphError(
                f"from_source needs a Source, not {type(source).__name__}. "
                f"Anything Spark can stream goes through env.from_spark(spark.readStream...)."
            )
        if dead_letters is not None and not isinstance(dead_letters, OutputTag):
            raise GraphError(
                f"from_source: dead_letters is an OutputTag, not {type(dead_letters).__name__}.",
                fix="Write tag = OutputTag('broken'), dead_letters=tag, and read them with get_side_output(tag).",
            )
        name = source_name or type(source).__name__
        stream = self._source(name, SourceSpec("splits", source, source.bounded, dead_letters), type_info)
        # A strategy that makes no watermarks and assigns no timestamps changes nothing.
        if watermark_strategy is None or watermark_strategy == WatermarkStrategy.no_watermarks():
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed._node.make_part_of_source()
        return timed

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """The whole numbers from `start` to `end`, both included."""
        return self.from_source(NumberSequenceSource(start, end), source_name="Sequence", type_info=Types.LONG())

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream[str]:
        """Lines that somebody sends, such as `nc -lk 9999`: for trying things out. Ends when that side closes.

        Nobody sends them again: lines that no checkpoint holds are lost when the driver dies or the job restarts.
        `max_retry`: for how many seconds to try again where nobody listens, or no longer; below 0: without end.
        """
        source = SocketTextSource(hostname, port, delimiter, max_retry)
        return self.from_source(source, source_name="Socket Stream", type_info=Types.STRING())

    def _source(self, name: str, source: SourceSpec, output_type: Any) -> DataStream[Any]:
        node = self._graph.add(name, source=source, output_type=output_type)
        self._launch.declared(self, node.location)
        return DataStream(self, [Input(node.id, Partitioning(FORWARD))])

    # -- running ---------------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program to its end. Raises what it failed with.

        Ctrl-C and SIGTERM stop it after the epoch under way and remove nothing: the next start resumes it.
        """
        client = self.execute_async(job_name)
        try:
            return client.result()
        except Interrupt as interrupt:
            stop_to_resume(client._job, interrupt)
            # Where the program waited is of no interest.
            raise interrupt.with_traceback(None) from None

    def execute_async(self, job_name: str | None = None) -> LocalJobClient:
        """Start the program and return at once."""
        check_keys(self._configuration.key_set())
        self._launch.executed(self)
        name = check_job_name(job_name or self._configuration.get(JOB_NAME), GraphError)
        physical = self._physical()
        if self._launch.inspect is not None:
            self._launch.inspect(name, self._graph, physical, self._configuration)
        client = submit(self, name, physical, job_name)
        self._graph = self._graph.following()
        return client

    def get_execution_plan(self) -> str:
        """The plan as JSON: operators, parallelism, chains, levels, and how records travel."""
        physical = self._physical()
        return execution_plan(self._graph, physical)

    def _physical(self) -> PhysicalGraph:
        check_values(self._configuration.to_dict())
        physical = build(
            self._graph,
            self.get_parallelism(),
            self._configuration.get(MAX_PARALLELISM),
            self.is_chaining_enabled(),
            self._job_parameters,
            self._configuration.get(SEGMENT_SIZE),
            self._is_batch(),
        )
        require_uids(self._graph, self._configuration)
        return physical


def _too_late(method: str, key: str) -> BadSetting:
    return BadSetting(
        f"{method} sets {key}, which Spark reads when it starts, and it has started. Call it before Spark is used, or "
        f"set {key} where you create the session."
    )
