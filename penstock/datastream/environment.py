"""The environment: where a program begins, is configured, and is run."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from penstock.checkpoint.epochs import EpochStatistics, Settings
from penstock.common.configuration import Configuration
from penstock.common.job import JobExecutionResult
from penstock.common.mistakes import ShortExceptHook
from penstock.common.options import BadSetting, canonical, check_keys, command_line_settings, surrounding_settings
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.data_stream import DataStream, _positive
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.job_client import JobClient
from penstock.datastream.state_backend import StateBackend
from penstock.errors import PenstockError
from penstock.graph.logical import FORWARD, GraphError, Input, LogicalGraph, Partitioning, Source
from penstock.graph.physical import build
from penstock.graph.plan_json import execution_plan
from penstock.runtime.plan import PhysicalGraph
from penstock.state.serializers import serializer_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RETAIN = "RETAIN_ON_CANCELLATION"
_RUNTIME_MODE = "execution.runtime-mode"


class StreamExecutionEnvironment:
    """Build a program with `from_…` and the methods of its streams; run it with `execute`."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        ShortExceptHook.install()
        program = configuration.to_dict() if configuration is not None else {}
        settings: dict[str, str] = {}
        for source in (surrounding_settings(), program, command_line_settings()):
            check_keys(source)
            settings |= canonical(source)
        self._configuration = Configuration.from_dict(settings)
        self._graph = LogicalGraph()
        self._job_parameters: dict[str, str] = {}
        self._on_epoch: list[Callable[[EpochStatistics], None]] = []
        self._spark: SparkSession | None = None

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        return StreamExecutionEnvironment(configuration)

    # -- configuration ---------------------------------------------------------------------------------------------

    def configure(self, configuration: Configuration) -> None:
        check_keys(configuration.key_set())
        self._configuration.add_all(Configuration.from_dict(canonical(configuration.to_dict())))

    def get_configuration(self) -> Configuration:
        return self._configuration

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        _positive(parallelism, "parallelism")
        self._configuration.set_integer("parallelism.default", parallelism)
        return self

    def get_parallelism(self) -> int:
        given = self._configuration.get_integer("parallelism.default", 0)
        if given:
            return given
        if self._spark is not None:
            return int(self._spark.sparkContext.defaultParallelism)
        cores = re.fullmatch(r"local(?:\[(\*|\d+).*\])?", self._configuration.get_string("spark.master", "local[*]"))
        if cores is None:
            return int(self.spark.sparkContext.defaultParallelism)
        return os.cpu_count() or 1 if cores[1] == "*" else int(cores[1] or 1)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        if not 1 <= max_parallelism <= 32768:
            raise GraphError(f"The max parallelism must be between 1 and 32768, not {max_parallelism!r}.")
        self._configuration.set_integer("pipeline.max-parallelism", max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        return self._configuration.get_integer("pipeline.max-parallelism", -1)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """BATCH: keyed reduces give only the last value of each key, at the end of the input."""
        self._configuration.set_string(_RUNTIME_MODE, execution_mode.name)
        return self

    def _is_batch(self) -> bool:
        text = self._configuration.get_string(_RUNTIME_MODE, "STREAMING")
        mode = RuntimeExecutionMode.__members__.get(text.upper())
        if mode is None:
            raise BadSetting(f"{_RUNTIME_MODE} is '{text}'.", fix="Set it to STREAMING, BATCH or AUTOMATIC.")
        endless = [node for node in self._graph.nodes.values() if node.source is not None and not node.source.bounded]
        if mode is RuntimeExecutionMode.BATCH and endless:
            raise GraphError(
                f"The runtime mode is BATCH, but source '{endless[0].name}' has no end, so no result would ever come.",
                fix="Make the source bounded (from_spark(df, bounded=True)), or use RuntimeExecutionMode.STREAMING.",
                places=(endless[0].place,),
            )
        return mode is RuntimeExecutionMode.BATCH or (mode is RuntimeExecutionMode.AUTOMATIC and not endless)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        self._configuration.set_boolean("pipeline.operator-chaining.enabled", False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._configuration.get_boolean("pipeline.operator-chaining.enabled", True)

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    ) -> StreamExecutionEnvironment:
        """Publish a checkpoint every `interval` milliseconds, and go on from the last one after a failure."""
        _positive(interval, "checkpoint interval (milliseconds)")
        self._configuration.set_string("execution.checkpointing.interval", f"{interval} ms")
        self._configuration.set_string("execution.checkpointing.mode", mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1 when checkpointing is off."""
        text = self._configuration.get_string("execution.checkpointing.interval", "")
        return milliseconds("execution.checkpointing.interval", text) if text else -1

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return CheckpointingMode[self._configuration.get_string("execution.checkpointing.mode", "EXACTLY_ONCE")]

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        self._configuration.add_all(Configuration.from_dict(state_backend.settings()))
        return self

    @property
    def spark(self) -> SparkSession:
        """The Spark session of this program; started when first asked for."""
        if self._spark is None:
            from penstock.spark.session import start_session

            values = self._configuration.to_dict()
            self._spark = start_session({key: value for key, value in values.items() if key.startswith("spark.")})
        return self._spark

    def add_epoch_listener(self, listener: Callable[[EpochStatistics], None]) -> None:
        """Call `listener` in the driver after every epoch. What it raises fails the job."""
        self._on_epoch.append(listener)

    # -- sources ---------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """A bounded stream of the records of a list, or of any iterable."""
        records = list(collection)
        if type_info is not None:
            serializer = serializer_for(type_info)
            for position, record in enumerate(records):
                try:
                    # As an exchange would give it: an int declared as DOUBLE is a float from the start.
                    records[position] = serializer.decode(serializer.encode(record))
                except PenstockError as error:
                    raise GraphError(
                        f"from_collection: record {position} is not of the declared type. {error}"
                    ) from None
        return self._source("Collection", Source("chunks", records, bounded=True), type_info)

    def from_elements(self, *elements: Any) -> DataStream:
        return self.from_collection(elements)

    def from_spark(self, df: DataFrame, bounded: bool | None = None) -> DataStream:
        """Any DataFrame as a source, one Row per row.

        A batch DataFrame is bounded. A streaming one goes on until the job is cancelled, unless `bounded=True`: then
        what is there when the job starts is all.
        """
        from penstock.spark.session import check_session

        if self._spark is None:
            check_session(df.sparkSession)
            self._spark = df.sparkSession
        streaming = df.isStreaming
        if not streaming and bounded is False:
            raise GraphError("A batch DataFrame is always bounded; leave bounded=False out.")
        return self._source("Spark", Source("rows", df, bounded=bool(bounded) or not streaming), None)

    def _source(self, name: str, source: Source, output_type: Any) -> DataStream:
        node = self._graph.add(name, source=source, output_type=output_type)
        return DataStream(self, [Input(node.id, Partitioning(FORWARD))])

    # -- running ---------------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program to its end. Raises what it failed with; Ctrl-C cancels it."""
        client = self.execute_async(job_name)
        try:
            return client.result()
        except KeyboardInterrupt:
            client.cancel().result()
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program and return at once."""
        check_keys(self._configuration.key_set())
        name = job_name or self._configuration.get_string("pipeline.name", "penstock-job")
        physical = self._physical()
        settings, root = self._settings(name)
        self._warn_of_derived_uids(root)
        interval = self.get_checkpoint_interval()

        from penstock.spark.job import Job, JobSpec

        spec = JobSpec(
            name=name,
            logical=self._graph,
            physical=physical,
            settings=settings,
            checkpoint_root=root,
            checkpointing=interval > 0,
            interval_ms=max(interval, 0),
            retain=self._configuration.get_string(
                "execution.checkpointing.externalized-checkpoint-retention", "NO_EXTERNALIZED_CHECKPOINTS"
            )
            == _RETAIN,
            records_per_epoch=self._configuration.get_integer("penstock.epoch.max-records", 0),
            on_epoch=list(self._on_epoch),
        )
        job = Job(self.spark, spec)
        job.start()
        self._graph = self._graph.following()
        return JobClient(job)

    def get_execution_plan(self) -> str:
        """The plan as JSON: operators, parallelism, chains, levels, and how records travel."""
        physical = self._physical()
        return execution_plan(self._graph, physical)

    def _physical(self) -> PhysicalGraph:
        return build(
            self._graph,
            self.get_parallelism(),
            self._configuration.get_integer("pipeline.max-parallelism", 0) or None,
            self.is_chaining_enabled(),
            self._job_parameters,
            self._configuration.get_integer("taskmanager.memory.segment-size", 32 * 1024),
            self._is_batch(),
        )

    def _settings(self, name: str) -> tuple[Settings, str | None]:
        config = self._configuration
        directory = config.get_string("state.checkpoints.dir", "")
        backend = config.get_string("state.backend", "filesystem" if directory else "memory").lower()
        if backend in ("memory", "jobmanager", "hashmap"):
            backend = "memory"
        elif backend in ("filesystem", "fs"):
            backend = "filesystem"
            if not directory:
                raise BadSetting(
                    "state.backend is filesystem, but state.checkpoints.dir is not set: where to put checkpoints?",
                    fix="Set state.checkpoints.dir to a directory, e.g. file:///var/checkpoints.",
                )
        else:
            raise BadSetting(f"state.backend is '{backend}'.", fix="Set it to memory or filesystem.")
        default_root = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}", "replicas")
        settings = Settings(
            backend=backend,
            memory_limit=config.get_integer("state.backend.memory.max-state-size", Settings.memory_limit),
            replica_root=config.get_string("state.backend.local-dir", default_root),
            timeout_ms=milliseconds(
                "execution.checkpointing.timeout",
                config.get_string("execution.checkpointing.timeout", "10 min"),
            ),
        )
        root = None
        if directory and backend != "memory":
            slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "job"
            root = os.path.join(local_path("state.checkpoints.dir", directory), slug)
        return settings, root

    def _warn_of_derived_uids(self, root: str | None) -> None:
        nodes = [
            node
            for node in self._graph.nodes.values()
            if node.given_uid is None and node.operator is not None and node.operator.keyed
        ]
        if nodes and root is not None:
            names = ", ".join(f"'{node.name}' ({node.uid})" for node in nodes)
            warnings.warn(
                f"These operators hold state but have no uid, so theirs is derived from the shape of the program: "
                f"{names}. If the program changes, their state is not found again. Give each a uid: "
                f"stream.process(...).uid('name').",
                stacklevel=4,
            )


_UNITS = {"ms": 1, "": 1, "s": 1000, "sec": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(key: str, text: str) -> int:
    """A duration as Flink writes it: '500 ms', '10 s', '10 min', or plain milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _UNITS:
        raise BadSetting(
            f"{key} is '{text}', which is no duration.", fix="Write for example '500 ms', '10 s' or '10 min'."
        )
    return int(match[1]) * _UNITS[match[2]]


def local_path(key: str, uri: str) -> str:
    """The local path of a directory given as a path or a file: URI."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise BadSetting(
            f"{key} is '{uri}': only local paths and file: URIs can be used.",
            fix="Mount the storage on every host and give the path, e.g. file:///mnt/checkpoints.",
        )
    return os.path.abspath(unquote(parsed.path) if parsed.scheme else uri)
