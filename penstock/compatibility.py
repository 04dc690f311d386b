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
_JVM = "Not available: Penstock objects do not wrap Java objects. Remove the call."
_INSIDE = "Not available: it is a PyFlink internal without a counterpart in Penstock."

_UNALIGNED = (
    "Not available: a barrier closes the input of an epoch, so checkpoints are always aligned and never wait behind "
    "buffered records. Remove the call."
)

_ROCKSDB_OPTIONS = (
    "Not available: set the memory of RocksDB with state.backend.rocksdb.memory.cache and .write-buffers, which apply "
    "to all replicas of a worker together."
)
_STORAGE = (
    "Not available: a state backend includes its storage. Use FsStateBackend(directory), MemoryStateBackend(), or the "
    "setting state.checkpoints.dir."
)
_SCHEMAS = (
    "Not available. Subclass SerializationSchema or DeserializationSchema from penstock.common, which also has "
    "JsonSchema and SimpleStringSchema, or convert with map before the sink or after the source."
)
_SOURCES = "Not available: it wraps a Java object. Use env.from_collection(...), or env.from_spark(df) for a DataFrame."
_SLOTS = (
    "Not available: Spark assigns cores and memory to tasks. Set spark.executor.memory, spark.task.cpus and similar "
    "settings in the Configuration; ds.slot_sharing_group('name') accepts a name."
)
_BUFFERS = (
    "Not available: a buffer is sent when it is full and when its epoch ends, so the checkpoint interval bounds how "
    "long a record waits. Remove the call."
)
_SERIALIZERS = "Not available: records are Python objects, so Java serializers do not apply. Remove the call."

OLDER: tuple[tuple[str, str], ...] = (
    (
        "ExternalizedCheckpointCleanup CheckpointConfig.enable_externalized_checkpoints "
        "CheckpointConfig.set_externalized_checkpoint_cleanup CheckpointConfig.get_externalized_checkpoint_cleanup",
        "Removed in Flink 2. Use config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention"
        ".RETAIN_ON_CANCELLATION).",
    ),
    (
        "TimeCharacteristic StreamExecutionEnvironment.set_stream_time_characteristic "
        "StreamExecutionEnvironment.get_stream_time_characteristic",
        "Removed in Flink 2: a program uses event time if it assigns timestamps. Remove the call, and use "
        "ds.assign_timestamps_and_watermarks(WatermarkStrategy...).",
    ),
    (
        "ExecutionConfig.set_restart_strategy ExecutionConfig.get_restart_strategy",
        "Removed in Flink 2. Use env.set_restart_strategy(RestartStrategies...), or the setting restart-strategy.type.",
    ),
    (
        "CheckpointConfig.set_checkpoint_storage CheckpointConfig.set_checkpoint_storage_dir "
        "CheckpointConfig.get_checkpoint_storage",
        "Removed in Flink 2. Use the setting state.checkpoints.dir, or "
        "env.set_state_backend(FsStateBackend(directory)).",
    ),
    (
        "StreamExecutionEnvironment.read_text_file",
        "Removed in Flink 2. Use env.from_source(FileSource.for_record_stream_format(StreamFormat"
        ".text_line_format(), path).build(), WatermarkStrategy.no_watermarks(), 'lines').",
    ),
    (
        "StreamExecutionEnvironment.from_parallel_collection StreamExecutionEnvironment.generate_sequence",
        "Only available in Java. Use env.from_collection(...) or env.from_sequence(first, last).",
    ),
    (
        "StreamExecutionEnvironment.register_job_listener StreamExecutionEnvironment.get_job_listeners",
        "Only available in Java. Use env.add_epoch_listener(function), or the JobClient from env.execute_async().",
    ),
    (
        "DataStream.iterate",
        "Removed in Flink 2, and the streams of an epoch cannot form a cycle. Keep records to revisit in state and set "
        "a timer, or write them to a topic that the job reads.",
    ),
)
"""Names from PyFlink 1 and from Flink's Java API that programs still use."""

ABSENT: tuple[tuple[str, str], ...] = (
    ("table", _TABLE),
    (
        "java_gateway common.utils datastream.utils "
        "SinkFunction.get_java_function Source.get_java_function Sink.get_java_function "
        "TypeInformation.get_java_type_info OutputTag.get_java_output_tag RowKind.to_j_row_kind",
        _JVM,
    ),
    (
        "AssignerWithPeriodicWatermarksWrapper AsyncFunctionDescriptor StreamTransformer SupportsPreprocessing "
        "util util.java_utils util.exceptions util.api_stability_decorators "
        "common.serializer TypeSerializer DEFAULT_OUTPUT_TAG KeyedStream.AccumulateType "
        "TimeWindowSerializer.serialize TimeWindowSerializer.deserialize CountWindowSerializer.serialize "
        "CountWindowSerializer.deserialize GlobalWindowSerializer.serialize GlobalWindowSerializer.deserialize "
        "ContinuousEventTimeTrigger.register_next_fire_timestamp "
        "ContinuousProcessingTimeTrigger.register_next_fire_timestamp "
        "TypeInformation.need_conversion TypeInformation.to_internal_type TypeInformation.from_internal_type",
        _INSIDE,
    ),
    # -- not implemented -----------------------------------------------------------------------------------------------
    (
        "WatermarkStrategy.with_watermark_alignment",
        "Not available: sources are read epoch by epoch, so none gets ahead by more than one epoch. Remove the call.",
    ),
    (
        "ExecutionConfig.set_auto_watermark_interval ExecutionConfig.get_auto_watermark_interval",
        "Not available: a watermark follows the record that advances it. Remove the call.",
    ),
    (
        "CheckpointConfig.enable_unaligned_checkpoints CheckpointConfig.disable_unaligned_checkpoints "
        "CheckpointConfig.set_aligned_checkpoint_timeout CheckpointConfig.get_aligned_checkpoint_timeout "
        "CheckpointConfig.set_alignment_timeout CheckpointConfig.get_alignment_timeout "
        "CheckpointConfig.set_force_unaligned_checkpoints",
        _UNALIGNED,
    ),
    (
        "FileCompactStrategy FileCompactor",
        "Not available. For fewer and larger files, set a rolling policy on the sink or a longer checkpoint interval.",
    ),
    ("StreamingFileSink", "Not available: FileSink replaces it. Use FileSink."),
    (
        "FileSink.BaseBuilder FileSink.BulkFormatBuilder FileSink.RowFormatBuilder FileSink.get_transformer",
        "Not available. Start with FileSink.for_row_format(...) or FileSink.for_bulk_format(...).",
    ),
    (
        "AvroParquetReaders AvroParquetWriters",
        "Not available: Avro is not supported. Use BulkFormat.parquet(...) and BulkWriterFactory.parquet(...).",
    ),
    (
        "CsvSchemaBuilder.disable_array_element_separator CsvSchemaBuilder.remove_array_element_separator "
        "CsvSchemaBuilder.set_array_element_separator CsvSchemaBuilder.set_allow_comments "
        "CsvSchemaBuilder.set_any_property_name CsvSchemaBuilder.size",
        "Not available. Read the column as text and parse it with map.",
    ),
    # -- available in another form -------------------------------------------------------------------------------------
    (
        "datastream.checkpoint_storage CheckpointStorage JobManagerCheckpointStorage FileSystemCheckpointStorage "
        "CustomCheckpointStorage",
        _STORAGE,
    ),
    (
        "PredefinedOptions EmbeddedRocksDBStateBackend.set_predefined_options "
        "EmbeddedRocksDBStateBackend.get_predefined_options EmbeddedRocksDBStateBackend.set_options "
        "EmbeddedRocksDBStateBackend.get_options",
        _ROCKSDB_OPTIONS,
    ),
    ("FlinkKafkaConsumer", "Not available: KafkaSource replaces it. Use KafkaSource.builder()."),
    ("FlinkKafkaProducer Semantic", "Not available: KafkaSink replaces it. Use KafkaSink.builder()."),
    (
        "datastream.connectors.dynamic_kafka",
        "Not available: a source reads one cluster. Use one KafkaSource with set_topic_pattern(...) per cluster, and "
        "ds.union.",
    ),
    ("KafkaSink.get_transformer", _INSIDE),
    ("datastream.connectors.kinesis", _through_spark("Kinesis", "aws-kinesis")),
    ("datastream.connectors.pulsar", _through_spark("Pulsar", "pulsar")),
    (
        "datastream.connectors.rabbitmq",
        "Not available, and Spark has no RabbitMQ source. Move the messages to a system that Spark reads (Kafka, "
        "files), or write a source with Spark's Python data source API and read it with env.from_spark(df); "
        f"{_SINK}",
    ),
    (
        "datastream.connectors.jdbc",
        "Not available: it wraps a Java sink. For PostgreSQL use "
        "penstock.datastream.connectors.postgres.PostgresSink(connection, table, key=...), which is exactly-once. "
        f"For other databases: {_SINK}",
    ),
    (
        "datastream.connectors.cassandra datastream.connectors.elasticsearch",
        f"Not available: it wraps a Java sink; {_SINK}",
    ),
    (
        "datastream.connectors.hybrid_source",
        "Not available. Combine both inputs into one DataFrame and pass it to env.from_spark(df), or merge two "
        "streams: ds.union(other).",
    ),
    (
        "datastream.formats.json",
        "Not available. For JSON messages use JsonSchema(MyDataclass) from penstock.common, for JSON files "
        "StreamFormat.json_lines and Encoder.json_lines.",
    ),
    (
        "datastream.formats.avro datastream.formats.orc",
        "Not available: Spark reads these formats. Use env.from_spark(env.spark.readStream.format(...)...load(path)), "
        f"which returns Rows; {_SINK}",
    ),
    (
        "RowFieldExtractorSchema CsvRowDeserializationSchema CsvRowSerializationSchema",
        _SCHEMAS,
    ),
    (
        "common.io InputFormat SourceFunction StreamExecutionEnvironment.add_source "
        "StreamExecutionEnvironment.create_input",
        _SOURCES,
    ),
    (
        "datastream.slot_sharing_group SlotSharingGroup MemorySize "
        "StreamExecutionEnvironment.register_slot_sharing_group",
        _SLOTS,
    ),
    (
        "StreamExecutionEnvironment.set_buffer_timeout StreamExecutionEnvironment.get_buffer_timeout "
        "DataStream.set_buffer_timeout",
        _BUFFERS,
    ),
    (
        "DataStream.set_uid_hash DataStreamSink.set_uid_hash",
        "Not available: Penstock does not use Flink's hashes. Set a uid on the operator: ds.uid('name').",
    ),
    (
        "DataStream.cache",
        "Not available: a job computes its streams from their sources. Write the records with a sink and read them "
        "with env.from_spark(df), or cache a batch DataFrame before you convert it to a stream: df.cache().",
    ),
    (
        "StreamExecutionEnvironment.enable_changelog_state_backend "
        "StreamExecutionEnvironment.is_changelog_state_backend_enabled",
        "Not available: every checkpoint stores only the changes since the last one. Remove the call.",
    ),
    (
        "StreamExecutionEnvironment.get_default_local_parallelism "
        "StreamExecutionEnvironment.set_default_local_parallelism",
        "Not available: each environment has its own default. Use env.set_parallelism(n), or the setting "
        "parallelism.default.",
    ),
    (
        "StreamExecutionEnvironment.add_classpaths",
        "Not available. Use env.add_jars(path, ...), or the settings spark.driver.extraClassPath and "
        "spark.executor.extraClassPath.",
    ),
    (
        "StreamExecutionEnvironment.register_cached_file",
        "Not available. Use env.spark.sparkContext.addFile(path), and SparkFiles.get(name) in your functions.",
    ),
    (
        "common.config_options ConfigOption ConfigOptions",
        "Not available: settings are identified by their keys. Use Configuration().set_string(key, value).",
    ),
    (
        "Configuration.get_bytearray Configuration.set_bytearray",
        "Not available: settings are text. Use set_string with base64 text.",
    ),
    ("Configuration.parse_list_value", "Not available: settings are never lists. Use value.split(';')."),
    (
        "common.input_dependency_constraint InputDependencyConstraint",
        "Not available: Spark schedules the stages of an epoch one after the other. Remove it.",
    ),
    (
        "ExecutionConfig.enable_closure_cleaner ExecutionConfig.disable_closure_cleaner "
        "ExecutionConfig.is_closure_cleaner_enabled ExecutionConfig.enable_force_kryo "
        "ExecutionConfig.disable_force_kryo ExecutionConfig.is_force_kryo_enabled "
        "ExecutionConfig.enable_generic_types ExecutionConfig.disable_generic_types "
        "ExecutionConfig.has_generic_types_disabled ExecutionConfig.enable_force_avro "
        "ExecutionConfig.disable_force_avro ExecutionConfig.is_force_avro_enabled "
        "ExecutionConfig.get_default_kryo_serializer_classes ExecutionConfig.get_registered_kryo_types "
        "ExecutionConfig.get_registered_pojo_types",
        _SERIALIZERS,
    ),
    (
        "ExecutionConfig.enable_object_reuse ExecutionConfig.disable_object_reuse "
        "ExecutionConfig.is_object_reuse_enabled",
        "Not available: Penstock copies a record only if a later change to it could affect an operator. Remove the "
        "call.",
    ),
    (
        "ExecutionConfig.set_latency_tracking_interval ExecutionConfig.get_latency_tracking_interval",
        "Not available. env.add_epoch_listener(function) reports the duration of every epoch.",
    ),
    (
        "ExecutionConfig.get_task_cancellation_interval ExecutionConfig.set_task_cancellation_interval "
        "ExecutionConfig.get_task_cancellation_timeout ExecutionConfig.set_task_cancellation_timeout",
        "Not available: Spark ends the tasks of a cancelled job. Remove the call.",
    ),
    (
        "ExecutionConfig.is_use_snapshot_compression ExecutionConfig.set_use_snapshot_compression",
        "Not available. Remove the call.",
    ),
)
"""By module below the import root (`datastream.window`), name (`TimeWindow`) or member (`DataStream.cache`), the text
of the error. Names of an absent module need an entry only if a package re-exports them."""

_KEYS = "keys are numbers, strings, bytes, dates, tuples of these and similar types: docs/write/keys.md"
_PRINT = "the driver prints when the epoch is complete, so a printed line is never rolled back"
_SLOT_NAME = "only shown in the plan: Spark assigns cores to tasks"
_SETTINGS = "an unknown key is an error; spark.* settings are passed to Spark"
_LIBRDKAFKA = "a librdkafka property; some have other names than in the Java client"

DIFFERS: dict[str, str] = {
    "AsyncFunction.timeout": "unless overridden, the error names the operator, the record and the timeout",
    "ExponentialBackoffDelayRetryStrategy": "the delay depends on the record's own attempts, not on other records",
    "CheckpointingMode.AT_LEAST_ONCE": "only sinks such as print commit before the checkpoint; others are unaffected",
    "ConnectedStreams.key_by": _KEYS,
    "DataStream.key_by": _KEYS,
    "DataStream.print": _PRINT,
    "DataStream.set_parallelism": "refused on a source: Spark runs one task per input partition",
    "DataStream.slot_sharing_group": _SLOT_NAME,
    "DataStreamSink.slot_sharing_group": _SLOT_NAME,
    "DeliveryGuarantee.NONE": "the same as AT_LEAST_ONCE",
    "KafkaOffsetsInitializer.offsets": "partitions without an offset use the reset strategy, not the group's offset",
    "KafkaSink": "uses confluent-kafka; with EXACTLY_ONCE the driver writes; messages have no timestamps",
    "KafkaSinkBuilder.set_property": _LIBRDKAFKA,
    "KafkaSource": "uses confluent-kafka, not the Java client",
    "KafkaSourceBuilder.set_bounded": "the offsets must exist when the job starts",
    "KafkaSourceBuilder.set_properties": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_property": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_topic_pattern": "a Python regular expression",
    "KafkaSourceBuilder.set_unbounded": "the job continues after all partitions reach their stopping offsets",
    "JobClient.cancel": "returns when the job has stopped",
    "KeyedStream.key_by": _KEYS,
    "KeyedStream.print": _PRINT,
    "RuntimeContext.get_attempt_number": "always 0: functions cannot see that an epoch is retried",
    "StreamExecutionEnvironment.add_jars": "for Spark's connectors; refused once Spark has started",
    "StreamExecutionEnvironment.add_python_archive": "functions find the folder with SparkFiles.get(name)",
    "StreamExecutionEnvironment.configure": _SETTINGS,
    "StreamExecutionEnvironment.execute_async": "without a name, the setting pipeline.name names the job",
    "StreamExecutionEnvironment.from_collection": "several tasks can read the collection",
    "StreamExecutionEnvironment.get_execution_environment": _SETTINGS,
    "StateTtlConfig.Builder.cleanup_full_snapshot": "when a base is merged; runs in the background unless disabled",
    "StateTtlConfig.Builder.cleanup_in_rocksdb_compact_filter": "by the checkpoint's clock, not the machine's",
    "StateTtlConfig.Builder.cleanup_incrementally": "at the end of the epoch, on every backend",
    "RuntimeExecutionMode.BATCH": "one Spark job without checkpoints; reduces emit final values; nothing is sorted",
    "StreamExecutionEnvironment.set_python_executable": "refused once Spark has started",
    "StreamExecutionEnvironment.set_python_requirements": "the driver installs wheels and ships them to the workers",
}
"""Names and members that accept the same calls but behave differently."""
