"""The execution environment, where a program is built, configured and run."""

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
from penstock.common.options.program import (
    AUTO_WATERMARK_INTERVAL,
    DEFAULT_MASTER,
    JOB_NAME,
    MAX_PARALLELISM,
    PARALLELISM,
    PYTHON_EXECUTABLE,
    RUNTIME_MODE,
    SEGMENT_SIZE,
)
from penstock.common.options.query import QUERYABLE_STATE
from penstock.common.overridden import ProgramConfiguration
from penstock.common.spark_submit import started_by_spark_submit
from penstock.common.tuning import Tuning
from penstock.common.type_parameters import T
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.generated import NumberSequenceSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.connectors.source import Source
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checks import as_declared, require_uids
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment_dependencies import EnvironmentDependencies, without_flinks_jars
from penstock.datastream.environment_inputs import EnvironmentInputs
from penstock.datastream.environment_settings import EnvironmentSettings
from penstock.datastream.environment_tuning import EnvironmentTuning
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.job_client import LocalJobClient
from penstock.datastream.job_listeners import JobListeners
from penstock.datastream.launch import launch_context
from penstock.datastream.notebook import html_of_environment, text_of_environment
from penstock.datastream.submission import limit_cores, parallelism_of_spark, submit
from penstock.datastream.time_characteristic import TimeCharacteristic
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.queryable import check_queryable
from penstock.graph.builder import build
from penstock.graph.logical import FORWARD, GraphError, Input, LogicalGraph, Partitioning, SourceSpec, check_positive
from penstock.graph.physical import PhysicalGraph
from penstock.graph.plan_json import flink_plan
from penstock.runtime.output_tag import OutputTag

if TYPE_CHECKING:
    from penstock.spark.types import DataFrame, SparkSession


class StreamExecutionEnvironment(EnvironmentSettings, EnvironmentTuning, EnvironmentInputs, EnvironmentDependencies):
    """The entry point of a program.

    Create streams with the ``from_...`` methods, transform them, and run the program with ``execute``.

    Example:
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2, 3]).map(lambda n: n * 2).print()
        >>> env.execute("double")
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        ShortExceptHook.install()
        program = configuration.to_dict() if configuration is not None else {}
        settings: dict[str, str] = {}
        self._launch = launch_context()
        given = self._launch.settings
        for source in (self._launch.defaults, surrounding_settings(), program, given):
            check_keys(source)
            settings |= canonical(source)
        check_values(settings)
        self._given = canonical(given)
        """The settings of the command line."""
        self._configuration = ProgramConfiguration(settings, self._given)
        self._tuning = Tuning(self._configuration)
        self._graph = LogicalGraph()
        self._job_parameters: dict[str, str] = {}
        self._on_epoch: list[Callable[[EpochStatistics], None]] = []
        self._listeners = JobListeners()
        self._time_characteristic = TimeCharacteristic.EventTime
        self._spark: SparkSession | None = None
        self._session_is_the_programs = False
        """Whether the program started Spark itself, and therefore without this environment's settings."""
        self._before_spark: dict[str, str] = {}
        """By method called, the setting it made that Spark reads only at startup."""

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return a new environment.

        Args:
            configuration: The settings of the program. Settings passed with ``penstock run -D`` take precedence.
        """
        return StreamExecutionEnvironment(configuration)

    # -- configuration ---------------------------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the default parallelism.

        Args:
            parallelism: The number of subtasks of each operator that does not set its own parallelism.
        """
        check_positive(parallelism, "parallelism")
        self._configuration.set_integer(PARALLELISM.key, parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism.

        Returns:
            The configured value, otherwise Spark's default parallelism. For a job of a cluster whose master is not
            ``local``, this is two, unless ``spark.default.parallelism`` or ``spark.cores.max`` is set.
        """
        given = self._configuration.get(PARALLELISM)
        if given:
            return given
        cores = re.fullmatch(
            r"local(?:\[(\*|\d+).*\])?", self._configuration.get_string("spark.master", DEFAULT_MASTER)
        )
        if cores is None and (self._launch.assignment is not None or self._launch.inspect is not None):
            return parallelism_of_spark(self._configuration)
        if self._spark is not None:
            return int(self._spark.sparkContext.defaultParallelism)
        if cores is None or started_by_spark_submit():
            return int(self.spark.sparkContext.defaultParallelism)
        return os.cpu_count() or 1 if cores[1] == "*" else int(cores[1] or 1)

    def _is_batch(self) -> bool:
        mode = RuntimeExecutionMode[self._configuration.get(RUNTIME_MODE)]
        endless = [node for node in self._graph.nodes.values() if node.source is not None and not node.source.bounded]
        if mode is RuntimeExecutionMode.BATCH and endless:
            raise GraphError(
                f"The runtime mode is BATCH, but source '{endless[0].name}' is unbounded: no result would ever appear.",
                fix="Make the source bounded (from_spark(df, bounded=True)), or use RuntimeExecutionMode.STREAMING.",
                locations=(endless[0].location,),
            )
        return mode is RuntimeExecutionMode.BATCH or (mode is RuntimeExecutionMode.AUTOMATIC and not endless)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return an object that reads and changes the checkpoint settings of this environment."""
        return CheckpointConfig(self)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this program. The first access starts it."""
        if self._spark is None:
            from penstock.spark.session import running_session, start_session

            if running_session() is not None:
                self._refuse_other_session()
                self._session_is_the_programs = True
            if self._launch.assignment is not None:
                limit_cores(self._configuration, self.get_parallelism())
            values = self._configuration.to_dict()
            for_spark = {key: value for key, value in values.items() if key.startswith("spark.")}
            if executable := self._configuration.get(PYTHON_EXECUTABLE):
                for_spark.setdefault("spark.pyspark.python", executable)
            self._spark = start_session(for_spark)
        return self._spark

    def get_config(self) -> ExecutionConfig:
        """Return an object that reads and changes the execution settings of this environment."""
        return ExecutionConfig(self, self._job_parameters, self._tuning)

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python interpreter of the workers.

        Args:
            python_exec: The interpreter's path on the worker hosts.

        Raises:
            BadSetting: If Spark has already started.
        """
        self._set_for_spark("set_python_executable", "spark.pyspark.python", python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Add Java archives to Spark, for example those of its connectors. Those of Flink are left out.

        Args:
            jars_path: Paths or URLs.

        Raises:
            BadSetting: If a file does not exist, or Spark has already started.
        """
        from penstock.spark.start_checks import check_file

        paths = without_flinks_jars("StreamExecutionEnvironment.add_jars", ",".join(jars_path).split(","))
        for path in paths:
            check_file("add_jars", path)
        if paths:
            before = self._configuration.get_string("spark.jars", "")
            self._set_for_spark("add_jars", "spark.jars", ",".join([before, *paths] if before else paths))

    def add_classpaths(self, *classpaths: str) -> None:
        """Add Java archives or folders to the class paths of the driver's and the executors' JVMs.

        Every host must have them.

        Args:
            classpaths: Paths, or ``file:`` URIs.

        Raises:
            BadSetting: If a URI has another scheme, or Spark has already started.
        """
        name = "add_classpaths"
        paths = without_flinks_jars(f"StreamExecutionEnvironment.{name}", ",".join(classpaths).split(","))
        local = [local_path(name, path) for path in paths]
        for key in ("spark.driver.extraClassPath", "spark.executor.extraClassPath") if local else ():
            before = self._configuration.get_string(key, "")
            self._set_for_spark(name, key, ":".join([before, *local] if before else local))

    def _set_for_spark(self, method: str, key: str, value: str) -> None:
        if self._spark is not None:
            raise _too_late(method, key)
        self._before_spark[method] = key
        self._configuration.set_string(key, value)

    def _refuse_other_session(self) -> None:
        """Refuse a running session if a method made settings that the session cannot have."""
        for method, key in self._before_spark.items():
            raise _too_late(method, key)

    def close(self) -> None:
        """Do nothing. The environment caches no streams, and other code can still use the Spark session."""

    def add_epoch_listener(self, listener: Callable[[EpochStatistics], None]) -> None:
        """Call a function in the driver after every epoch.

        Sinks that commit concurrently with the next epoch might not have committed yet.

        Args:
            listener: A function of the epoch's statistics. An exception that it raises fails the job.
        """
        self._on_epoch.append(listener)

    # -- sources ---------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[T], type_info: Any = None) -> DataStream[T]:
        """Create a bounded stream from an iterable.

        Args:
            collection: The records.
            type_info: The type of the records. By default they are pickled.

        Raises:
            GraphError: If a record is not of the declared type.
        """
        records = list(collection)
        if type_info is not None:
            records = as_declared(records, type_info)
        return self._source("Collection", SourceSpec("chunks", records, bounded=True), type_info)

    def from_elements(self, *elements: T) -> DataStream[T]:
        """Create a bounded stream from the arguments.

        Args:
            elements: The records.
        """
        return self.from_collection(elements)

    def from_spark(self, df: DataFrame, bounded: bool | None = None) -> DataStream:
        """Create a stream of Rows from a DataFrame.

        Args:
            df: A batch or streaming DataFrame. A batch DataFrame is always bounded.
            bounded: Whether a streaming DataFrame ends after the data that is available when the job starts. By default
                it runs until the job is cancelled.
        """
        from penstock.spark.session import check_session

        if self._spark is None:
            self._refuse_other_session()
            check_session(df.sparkSession)
            self._spark = df.sparkSession
            self._session_is_the_programs = True
        streaming = df.isStreaming
        if not streaming and bounded is False:
            raise GraphError("A batch DataFrame is always bounded. Remove bounded=False.")
        return self._source("Spark", SourceSpec("rows", df, bounded=bool(bounded) or not streaming), None)

    def from_source(
        self,
        source: Source[T],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: Any = None,
        dead_letters: OutputTag | None = None,
    ) -> DataStream[T]:
        """Create a stream from a source.

        Args:
            source: A source from ``penstock.datastream.connectors``, or your own ``Source``.
            watermark_strategy: How to extract timestamps and generate watermarks. By default it does neither.
            source_name: The name of the source operator. By default it is the name of its class.
            type_info: The type of the records. By default it is the type that the source produces, if it declares one.
            dead_letters: The side output for records that cannot be decoded, each as a ``DeadLetter``. Read it with
                ``get_side_output``. Without it, such a record fails the job.

        Example:
            >>> broken = OutputTag("broken")
            >>> orders = env.from_source(source, dead_letters=broken)
            >>> orders.get_side_output(broken).print()
        """
        if not isinstance(source, Source):
            raise GraphError(
                f"from_source needs a Source, not {type(source).__name__}. "
                f"Read anything that Spark can stream with env.from_spark(spark.readStream...)."
            )
        if dead_letters is not None and not isinstance(dead_letters, OutputTag):
            raise GraphError(
                f"from_source: dead_letters must be an OutputTag, not {type(dead_letters).__name__}.",
                fix="Write tag = OutputTag('broken'), pass dead_letters=tag, and read them with get_side_output(tag).",
            )
        name = source_name or type(source).__name__
        if type_info is None:
            type_info = source.produced_type
        stream = self._source(name, SourceSpec("splits", source, source.bounded, dead_letters), type_info)
        # This strategy generates no watermarks and assigns no timestamps, so it needs no operator.
        if watermark_strategy is None or watermark_strategy == WatermarkStrategy.no_watermarks():
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed._node.make_part_of_source()
        return timed

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """Create a bounded stream of consecutive integers.

        Args:
            start: The first integer.
            end: The last integer, inclusive.
        """
        return self.from_source(NumberSequenceSource(start, end), source_name="Sequence", type_info=Types.LONG())

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream[str]:
        """Create a stream of lines from a socket, such as that of ``nc -lk 9999``. Use it only for experiments.

        The stream ends when the server closes the connection. A socket is not replayable: lines read since the last
        checkpoint are lost when the job restarts.

        Args:
            hostname: The host to connect to.
            port: The port to connect to.
            delimiter: The separator between records.
            max_retry: How many seconds to retry a failed or lost connection. A negative value retries forever.
        """
        source = SocketTextSource(hostname, port, delimiter, max_retry)
        return self.from_source(source, source_name="Socket Stream", type_info=Types.STRING())

    def _source(self, name: str, source: SourceSpec, output_type: Any) -> DataStream[Any]:
        node = self._graph.add(name, source=source, output_type=output_type)
        self._launch.declared(self, node.location)
        return DataStream(self, [Input(node.id, Partitioning(FORWARD))])

    # -- running ---------------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait until it ends.

        Ctrl-C and SIGTERM stop the job after the current epoch and keep its checkpoints, so the next start resumes it.

        Args:
            job_name: The name of the job. By default the configured name applies.

        Returns:
            The result of the job.

        Raises:
            PenstockError: If the job fails.
        """
        client = self.execute_async(job_name)
        try:
            with self._listeners.hearing_failure("on_job_executed"):
                result = client.result()
            self._listeners.executed(result)
            return result
        except Interrupt as interrupt:
            stop_to_resume(client._job, interrupt)
            # The frame in which the program waited does not help the user.
            raise interrupt.with_traceback(None) from None

    def execute_async(self, job_name: str | None = None) -> LocalJobClient:
        """Start the program and return immediately.

        Args:
            job_name: The name of the job. By default the configured name applies.

        Returns:
            A client that controls the job.
        """
        check_keys(self._configuration.key_set())
        self._launch.executed(self)
        name = check_job_name(job_name or self._configuration.get(JOB_NAME), GraphError)
        physical = self._physical()
        if self._launch.inspect is not None:
            self._launch.inspect(name, self._graph, physical, self._configuration)
        self._launch.submitting()
        with self._listeners.hearing_failure("on_job_submitted"):
            client = submit(self, name, physical, job_name)
        self._graph = self._graph.following()
        self._listeners.submitted(client)
        return client

    def get_execution_plan(self) -> str:
        """Return the plan as JSON, in Flink's format, with additional fields for chains, levels and types."""
        physical = self._physical()
        return flink_plan(self._graph, physical)

    def _parallelism_without_spark(self) -> int:
        """Return the default parallelism, or an assumption instead of starting Spark to ask for it."""
        master = self._configuration.get_string("spark.master", DEFAULT_MASTER)
        if self._configuration.get(PARALLELISM) or self._spark is not None or master.startswith("local"):
            return self.get_parallelism()
        return parallelism_of_spark(self._configuration)

    def __repr__(self) -> str:
        return text_of_environment(self)

    def _repr_html_(self) -> str:
        """Return the plan and the settings, for notebooks."""
        return html_of_environment(self)

    def _physical(self, parallelism: int | None = None) -> PhysicalGraph:
        check_values(self._configuration.to_dict())
        physical = build(
            self._graph,
            parallelism or self.get_parallelism(),
            self._configuration.get(MAX_PARALLELISM),
            self.is_chaining_enabled(),
            self.get_config().get_global_job_parameters(),
            self._configuration.get(SEGMENT_SIZE),
            self._is_batch(),
            periodic_watermarks=self._configuration.get(AUTO_WATERMARK_INTERVAL) > 0,
        )
        require_uids(self._graph, self._configuration)
        check_queryable(self._graph, self._configuration.get(QUERYABLE_STATE))
        return physical


def _too_late(method: str, key: str) -> BadSetting:
    return BadSetting(
        f"{method} sets {key}, which Spark reads only at startup, but Spark has already started. Call it before Spark "
        f"is used, or set {key} where you create the session."
    )
