"""Texts about PyFlink names that Penstock lacks or treats differently, for docs/migrate/compatibility.md.

``penstock.absent`` raises errors with these texts, and ``make compatibility`` generates the page from them. An entry
for a name that Penstock has, or that PyFlink lacks, fails that command.
"""

from __future__ import annotations

_SINK = (
    "to write, use ds.to_spark(schema).format(...) with any Spark writer, or pass your own Sink to ds.sink_to(...) "
    "(penstock.datastream.connectors.Sink: it writes in the tasks and commits once the epoch's checkpoint is "
    "published)."
)


def _through_spark(system: str, format: str) -> str:
    return (
        f"Not available: Spark reads {system}. Use env.from_spark(env.spark.readStream.format('{format}')...load()), "
        f"with Spark's connector in the setting spark.jars.packages; {_SINK}"
    )


_TABLE = (
    "Not available: Penstock has no Table API. Use Spark SQL: env.spark.sql(...) returns a DataFrame, and "
    "env.from_spark(df) turns it into a stream."
)
JAVA_OBJECTS = "Not available: Penstock objects do not wrap Java objects. Remove the call."
_INSIDE = "Not available: it is a PyFlink internal without a counterpart in Penstock."


OLDER: tuple[tuple[str, str], ...] = (
    (
        "DataStream.iterate",
        "Removed in Flink 2, and the streams of an epoch cannot form a cycle. Keep records to revisit in state and set "
        "a timer, or write them to a topic that the job reads.",
    ),
    (
        "ExecutionMode",
        "Removed in Flink 2. Leave it out: records are pipelined, and RuntimeExecutionMode.BATCH is batch mode.",
    ),
    ("FlinkKafkaConsumerBase", "Use FlinkKafkaConsumer, or KafkaSource in new programs."),
    ("FlinkKafkaProducerBase", "Use FlinkKafkaProducer, or KafkaSink in new programs."),
    ("NullByteKeySelector", "Removed in Flink 2. Use ds.key_by(lambda _: 0)."),
)
"""Names from PyFlink 1 and from Flink's Java API that programs still use."""

ACCEPTED: tuple[tuple[str, str], ...] = (
    (
        "StreamExecutionEnvironment.set_buffer_timeout StreamExecutionEnvironment.get_buffer_timeout "
        "DataStream.set_buffer_timeout KeyedStream.set_buffer_timeout",
        "a buffer is sent when it is full and when its epoch ends",
    ),
    (
        "ExecutionConfig.enable_object_reuse ExecutionConfig.disable_object_reuse "
        "ExecutionConfig.is_object_reuse_enabled",
        "a record is copied only if a later change to it could affect another operator",
    ),
    (
        "ExecutionConfig.enable_closure_cleaner ExecutionConfig.disable_closure_cleaner "
        "ExecutionConfig.is_closure_cleaner_enabled",
        "functions are pickled with what they refer to",
    ),
    (
        "ExecutionConfig.set_latency_tracking_interval ExecutionConfig.get_latency_tracking_interval",
        "the latency of a record is that of its epoch, which the metrics report",
    ),
    (
        "ExecutionConfig.set_use_snapshot_compression ExecutionConfig.is_use_snapshot_compression",
        "checkpoints have their own format",
    ),
    (
        "ExecutionConfig.set_task_cancellation_interval ExecutionConfig.get_task_cancellation_interval "
        "ExecutionConfig.set_task_cancellation_timeout ExecutionConfig.get_task_cancellation_timeout",
        "the tasks of a cancelled job are ended by Spark",
    ),
    (
        "ExecutionConfig.enable_generic_types ExecutionConfig.disable_generic_types "
        "ExecutionConfig.has_generic_types_disabled ExecutionConfig.enable_force_kryo "
        "ExecutionConfig.disable_force_kryo ExecutionConfig.is_force_kryo_enabled ExecutionConfig.enable_force_avro "
        "ExecutionConfig.disable_force_avro ExecutionConfig.is_force_avro_enabled "
        "ExecutionConfig.get_default_kryo_serializer_classes ExecutionConfig.get_registered_kryo_types "
        "ExecutionConfig.get_registered_pojo_types ExecutionConfig.add_default_kryo_serializer "
        "ExecutionConfig.register_type_with_kryo_serializer ExecutionConfig.register_pojo_type "
        "ExecutionConfig.register_kryo_type "
        "ExecutionConfig.get_registered_types_with_kryo_serializer_classes",
        "records are Python objects, so Java serializers do not apply",
    ),
    (
        "CheckpointConfig.enable_unaligned_checkpoints CheckpointConfig.disable_unaligned_checkpoints "
        "CheckpointConfig.is_unaligned_checkpoints_enabled CheckpointConfig.set_aligned_checkpoint_timeout "
        "CheckpointConfig.get_aligned_checkpoint_timeout CheckpointConfig.set_alignment_timeout "
        "CheckpointConfig.get_alignment_timeout CheckpointConfig.set_force_unaligned_checkpoints "
        "CheckpointConfig.is_force_unaligned_checkpoints "
        "StreamExecutionEnvironment.is_unaligned_checkpoints_enabled "
        "StreamExecutionEnvironment.is_force_unaligned_checkpoints",
        "a barrier closes the input of an epoch, so checkpoints never wait behind buffered records",
    ),
    (
        "CheckpointConfig.set_max_concurrent_checkpoints CheckpointConfig.get_max_concurrent_checkpoints",
        "every epoch ends in a checkpoint, and the next epoch builds on it",
    ),
    (
        "StreamExecutionEnvironment.enable_changelog_state_backend "
        "StreamExecutionEnvironment.is_changelog_state_backend_enabled",
        "every checkpoint stores only the changes since the last one",
    ),
    (
        "EmbeddedRocksDBStateBackend.is_incremental_checkpoints_enabled EmbeddedRocksDBStateBackend(False)",
        "checkpoints are always incremental",
    ),
    (
        "PredefinedOptions EmbeddedRocksDBStateBackend.set_predefined_options "
        "EmbeddedRocksDBStateBackend.get_predefined_options EmbeddedRocksDBStateBackend.set_options "
        "EmbeddedRocksDBStateBackend.get_options",
        "replicas have tuned options; state.backend.rocksdb.memory.cache and .write-buffers set their memory",
    ),
    (
        "WatermarkStrategy.with_watermark_alignment",
        "sources are read epoch by epoch, so none gets ahead by more than one epoch",
    ),
    (
        "datastream.slot_sharing_group SlotSharingGroup MemorySize "
        "StreamExecutionEnvironment.register_slot_sharing_group DataStream.slot_sharing_group "
        "DataStreamSink.slot_sharing_group KeyedStream.slot_sharing_group",
        "cores and memory are assigned to tasks by Spark; the plan shows the group",
    ),
    ("DeliveryGuarantee.NONE", "records are written at least once"),
    (
        "StreamExecutionEnvironment.set_default_local_parallelism "
        "StreamExecutionEnvironment.get_default_local_parallelism",
        "each environment has its own default: set_parallelism",
    ),
    (
        "DataStream.set_uid_hash DataStreamSink.set_uid_hash KeyedStream.set_uid_hash",
        "state is stored under uids, not under Flink's hashes",
    ),
    (
        "DataStream.cache KeyedStream.cache",
        "every job computes its streams from their sources, with the same records",
    ),
    (
        "FileCompactStrategy FileCompactor FileSink.RowFormatBuilder.enable_compact "
        "FileSink.BulkFormatBuilder.enable_compact FileSink.BaseBuilder.enable_compact",
        "a file is not rewritten once it is committed; a rolling policy or longer epochs make files larger",
    ),
    (
        "FileSourceBuilder.set_file_enumerator FileEnumeratorProvider.default_splittable_file_enumerator",
        "one task reads each file",
    ),
    (
        "common.input_dependency_constraint InputDependencyConstraint",
        "stages of an epoch run one after the other",
    ),
)
"""Calls that change nothing here, and why: they are accepted, and one paragraph per program lists them."""

ABSENT: tuple[tuple[str, str], ...] = (
    ("table", _TABLE),
    (
        "java_gateway common.utils datastream.utils AssignerWithPeriodicWatermarksWrapper "
        "SinkFunction.get_java_function Source.get_java_function Sink.get_java_function "
        "SourceFunction.get_java_function MemorySize.get_java_memory_size SlotSharingGroup.get_java_slot_sharing_group "
        "TypeInformation.get_java_type_info OutputTag.get_java_output_tag RowKind.to_j_row_kind",
        JAVA_OBJECTS,
    ),
    (
        "util util.java_utils util.exceptions util.api_stability_decorators",
        _INSIDE,
    ),
    # -- not implemented -----------------------------------------------------------------------------------------------
    (
        "AvroParquetReaders AvroParquetWriters",
        "Not available: Avro is not supported. Use BulkFormat.parquet(...) and BulkWriterFactory.parquet(...).",
    ),
    # -- available in another form -------------------------------------------------------------------------------------
    ("datastream.connectors.kinesis", _through_spark("Kinesis", "aws-kinesis")),
    (
        "datastream.connectors.pulsar PulsarSource PulsarSourceBuilder StartCursor StopCursor",
        _through_spark("Pulsar", "pulsar"),
    ),
    (
        "datastream.connectors.rabbitmq RMQConnectionConfig RMQSink RMQSource",
        "Not available, and Spark has no RabbitMQ source. Move the messages to a system that Spark reads (Kafka, "
        "files), or write a source with Spark's Python data source API and read it with env.from_spark(df); "
        f"{_SINK}",
    ),
    (
        "datastream.connectors.jdbc JdbcSink JdbcConnectionOptions JdbcExecutionOptions",
        "Not available: it wraps a Java sink. For PostgreSQL use "
        "penstock.datastream.connectors.postgres.PostgresSink(connection, table, key=...), which is exactly-once. "
        f"For other databases: {_SINK}",
    ),
    (
        "datastream.connectors.cassandra datastream.connectors.elasticsearch",
        f"Not available: it wraps a Java sink; {_SINK}",
    ),
    (
        "datastream.formats.avro AvroRowDeserializationSchema AvroRowSerializationSchema",
        "Not available: Spark reads these formats. Use env.from_spark(env.spark.readStream.format(...)...load(path)), "
        f"which returns Rows; {_SINK}",
    ),
    ("common.io InputFormat StreamExecutionEnvironment.create_input", JAVA_OBJECTS),
)
"""By module below the import root (`datastream.window`), name (`TimeWindow`) or member (`DataStream.cache`), the text
of the error. Names of an absent module need an entry only if a package re-exports them."""

_KEYS = "keys are numbers, strings, bytes, dates, tuples and lists of these and similar types: docs/write/keys.md"
_PRINT = "the driver prints when the epoch is complete, so a printed line is never rolled back"
_LIBRDKAFKA = "properties of the Java client get librdkafka's names; those that it does not need are dropped"

DIFFERS: dict[str, str] = {
    "CheckpointingMode.AT_LEAST_ONCE": "only sinks such as print commit before the checkpoint; others are unaffected",
    "ConnectedStreams.key_by": _KEYS,
    "DataStream.key_by": _KEYS,
    "DataStream.print": _PRINT,
    "KafkaSink": "uses confluent-kafka; with EXACTLY_ONCE the driver writes; messages have no timestamps",
    "KafkaSinkBuilder.set_property": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_bounded": "the offsets must exist when the job starts",
    "KafkaSourceBuilder.set_properties": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_property": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_topic_pattern": "a Python regular expression",
    "KafkaSourceBuilder.set_unbounded": "the job continues after all partitions reach their stopping offsets",
    "KeyedStream.key_by": _KEYS,
    "KeyedStream.print": _PRINT,
    "RuntimeContext.get_attempt_number": "always 0: functions cannot see that an epoch is retried",
    "StreamExecutionEnvironment.add_jars": "for Spark's connectors; refused once Spark has started",
    "StreamExecutionEnvironment.add_python_archive": "functions find the folder with SparkFiles.get(name)",
    "StreamExecutionEnvironment.execute_async": "without a name, the setting pipeline.name names the job",
    "RuntimeExecutionMode.BATCH": "one Spark job without checkpoints; reduces emit final values; nothing is sorted",
    "StreamExecutionEnvironment.set_python_executable": "refused once Spark has started",
    "StreamExecutionEnvironment.set_python_requirements": "the driver installs wheels and ships them to the workers",
}
"""Names and members that accept the same calls but behave differently."""

SAME_RESULTS = frozenset(
    {
        "CheckpointingMode.AT_LEAST_ONCE",
        "DataStream.print",
        "KafkaSinkBuilder.set_property",
        "KafkaSourceBuilder.set_properties",
        "KafkaSourceBuilder.set_property",
        "KeyedStream.print",
        "StreamExecutionEnvironment.add_jars",
        "StreamExecutionEnvironment.set_python_executable",
        "StreamExecutionEnvironment.set_python_requirements",
    }
)
"""Those of them whose results are PyFlink's: the difference is when, where or by which library something happens."""
