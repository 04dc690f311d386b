"""What is said of PyFlink's names that are absent here, or differ: the hand-written half of docs/migrate/compatibility.md.

`penstock.absent` raises with these texts, `make compatibility` makes the page from them. An entry for a name that is
there, or that PyFlink does not have, fails that.
"""

from __future__ import annotations

_SINK = (
    "to write, use ds.to_spark(schema).format(...) with any writer of Spark's, or give ds.sink_to(...) a Sink of your "
    "own (penstock.datastream.connectors.Sink: it writes in the tasks and commits once the epoch's checkpoint is "
    "published)."
)


def _through_spark(system: str, format: str) -> str:
    return (
        f"Not there: Spark reads {system}. Use env.from_spark(env.spark.readStream.format('{format}')...load()), with "
        f"Spark's connector for it among the setting spark.jars.packages; {_SINK}"
    )


_TABLE = (
    "Not there: Penstock has no Table API. Use Spark SQL: env.spark.sql(...) gives a DataFrame, and env.from_spark(df) "
    "makes it a stream."
)
_JVM = "Not there: no Java object stands behind a Penstock object. Leave the call out."
_INSIDE = "Not there: it belongs to the inside of PyFlink, and Penstock's inside is another."

_UNALIGNED = (
    "Not there: a barrier closes the input of an epoch, so checkpoints are always aligned, and none waits behind "
    "records in a buffer. Leave the call out."
)

_ROCKSDB_OPTIONS = (
    "Not there: what RocksDB may use is set by state.backend.rocksdb.memory.cache and .write-buffers, for all replicas "
    "of a worker together."
)
_STORAGE = (
    "Not there: a state backend brings its storage. Use FsStateBackend(directory), MemoryStateBackend(), or the "
    "setting state.checkpoints.dir."
)
_SCHEMAS = (
    "Not there. Subclass SerializationSchema or DeserializationSchema of penstock.common, where JsonSchema and "
    "SimpleStringSchema are, or map before the sink and behind the source."
)
_SOURCES = "Not there: it wraps a Java object. Use env.from_collection(...), or env.from_spark(df) with any DataFrame."
_SLOTS = (
    "Not there: Spark gives tasks their cores and memory. Set spark.executor.memory, spark.task.cpus and the like in "
    "the Configuration; ds.slot_sharing_group('name') takes a name."
)
_BUFFERS = (
    "Not there: a buffer leaves when it is full and when its epoch ends. The time between checkpoints bounds how long "
    "a record waits. Leave the call out."
)
_SERIALIZERS = "Not there: records are Python objects, and no Java serializer touches them. Leave the call out."

OLDER: tuple[tuple[str, str], ...] = (
    (
        "ExternalizedCheckpointCleanup CheckpointConfig.enable_externalized_checkpoints "
        "CheckpointConfig.set_externalized_checkpoint_cleanup CheckpointConfig.get_externalized_checkpoint_cleanup",
        "Flink 2 has it no more. Use config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention"
        ".RETAIN_ON_CANCELLATION).",
    ),
    (
        "TimeCharacteristic StreamExecutionEnvironment.set_stream_time_characteristic "
        "StreamExecutionEnvironment.get_stream_time_characteristic",
        "Flink 2 has it no more: a program has event time where it assigns timestamps. Leave the call out, and use "
        "ds.assign_timestamps_and_watermarks(WatermarkStrategy...).",
    ),
    (
        "ExecutionConfig.set_restart_strategy ExecutionConfig.get_restart_strategy",
        "Flink 2 has it no more. Use env.set_restart_strategy(RestartStrategies...), or the setting "
        "restart-strategy.type.",
    ),
    (
        "CheckpointConfig.set_checkpoint_storage CheckpointConfig.set_checkpoint_storage_dir "
        "CheckpointConfig.get_checkpoint_storage",
        "Flink 2 has it no more. Use the setting state.checkpoints.dir, or "
        "env.set_state_backend(FsStateBackend(directory)).",
    ),
    (
        "StreamExecutionEnvironment.read_text_file",
        "Flink 2 has it no more. Use env.from_source(FileSource.for_record_stream_format(StreamFormat"
        ".text_line_format(), path).build(), WatermarkStrategy.no_watermarks(), 'lines').",
    ),
    (
        "StreamExecutionEnvironment.from_parallel_collection StreamExecutionEnvironment.generate_sequence",
        "Only Java has it. Use env.from_collection(...) or env.from_sequence(first, last).",
    ),
    (
        "StreamExecutionEnvironment.register_job_listener StreamExecutionEnvironment.get_job_listeners",
        "Only Java has it. Use env.add_epoch_listener(function), or the JobClient of env.execute_async().",
    ),
    (
        "DataStream.iterate",
        "Flink 2 has it no more, and an epoch has no way back. Keep what is to be looked at again in state, with a "
        "timer, or write it to a topic that the job reads.",
    ),
)
"""Names of PyFlink 1 and of Flink's Java API that programs still have."""

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
    # -- being built ---------------------------------------------------------------------------------------------------
    (
        "WatermarkStrategy.with_watermark_alignment",
        "Not there: sources are read epoch by epoch, so none runs ahead by more than one. Leave the call out.",
    ),
    (
        "ExecutionConfig.set_auto_watermark_interval ExecutionConfig.get_auto_watermark_interval",
        "Not there: a watermark follows the record that moved it. Leave the call out.",
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
        "Not there. For fewer and larger files give the sink a rolling policy, or make epochs longer.",
    ),
    ("StreamingFileSink", "Not there: it is FileSink's predecessor. Use FileSink."),
    (
        "FileSink.BaseBuilder FileSink.BulkFormatBuilder FileSink.RowFormatBuilder FileSink.get_transformer",
        "Not there. Start with FileSink.for_row_format(...) or FileSink.for_bulk_format(...).",
    ),
    (
        "AvroParquetReaders AvroParquetWriters",
        "Not there: no Avro. Use BulkFormat.parquet(...) and BulkWriterFactory.parquet(...).",
    ),
    (
        "CsvSchemaBuilder.disable_array_element_separator CsvSchemaBuilder.remove_array_element_separator "
        "CsvSchemaBuilder.set_array_element_separator CsvSchemaBuilder.set_allow_comments "
        "CsvSchemaBuilder.set_any_property_name CsvSchemaBuilder.size",
        "Not there. Read the column as text and take it apart in map.",
    ),
    # -- otherwise here ------------------------------------------------------------------------------------------------
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
    ("FlinkKafkaConsumer", "Not there: it is KafkaSource's predecessor. Use KafkaSource.builder()."),
    ("FlinkKafkaProducer Semantic", "Not there: it is KafkaSink's predecessor. Use KafkaSink.builder()."),
    (
        "datastream.connectors.dynamic_kafka",
        "Not there: a source reads one cluster. Use a KafkaSource with set_topic_pattern(...) for each, and ds.union.",
    ),
    ("KafkaSink.get_transformer", _INSIDE),
    ("datastream.connectors.kinesis", _through_spark("Kinesis", "aws-kinesis")),
    ("datastream.connectors.pulsar", _through_spark("Pulsar", "pulsar")),
    (
        "datastream.connectors.rabbitmq",
        "Not there, and Spark has no source for RabbitMQ. Bring the messages to what Spark reads (Kafka, files), or "
        f"write a data source with Spark's Python data source API and read it through env.from_spark(df); {_SINK}",
    ),
    (
        "datastream.connectors.jdbc",
        "Not there: it wraps a Java sink. For PostgreSQL use "
        "penstock.datastream.connectors.postgres.PostgresSink(connection, table, key=...), which is exactly-once. "
        f"For other databases: {_SINK}",
    ),
    (
        "datastream.connectors.cassandra datastream.connectors.elasticsearch",
        f"Not there: it wraps a Java sink; {_SINK}",
    ),
    (
        "datastream.connectors.hybrid_source",
        "Not there. Make one DataFrame of both with Spark and give it to env.from_spark(df), or unite two streams: "
        "ds.union(other).",
    ),
    (
        "datastream.formats.json",
        "Not there. Messages of JSON are read and written by JsonSchema(MyDataclass) of penstock.common, "
        "files by StreamFormat.json_lines and Encoder.json_lines.",
    ),
    (
        "datastream.formats.avro datastream.formats.orc",
        "Not there: Spark reads these formats. Use env.from_spark(env.spark.readStream.format(...)...load(path)), "
        f"which gives Rows; {_SINK}",
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
        "Not there: Flink's hashes mean nothing here. Give the operator a uid: ds.uid('name').",
    ),
    (
        "DataStream.cache",
        "Not there: a job computes its streams from their sources. Write the records with a sink and read them with "
        "env.from_spark(df), or cache a batch DataFrame before it becomes a stream: df.cache().",
    ),
    (
        "StreamExecutionEnvironment.enable_changelog_state_backend "
        "StreamExecutionEnvironment.is_changelog_state_backend_enabled",
        "Not there: every checkpoint stores only what has changed since the last. Leave the call out.",
    ),
    (
        "StreamExecutionEnvironment.get_default_local_parallelism "
        "StreamExecutionEnvironment.set_default_local_parallelism",
        "Not there: each environment has its own. Use env.set_parallelism(n), or the setting parallelism.default.",
    ),
    (
        "StreamExecutionEnvironment.add_classpaths",
        "Not there. Use env.add_jars(path, ...), or the settings spark.driver.extraClassPath and "
        "spark.executor.extraClassPath.",
    ),
    (
        "StreamExecutionEnvironment.set_python_requirements",
        "Not there: Spark installs no packages. Install them where the executors run, or ship an environment with the "
        "setting spark.archives and env.set_python_executable(path).",
    ),
    (
        "StreamExecutionEnvironment.add_python_archive",
        "Not there. Use env.spark.sparkContext.addArchive(path), and SparkFiles.get(name) in your functions.",
    ),
    (
        "StreamExecutionEnvironment.register_cached_file",
        "Not there. Use env.spark.sparkContext.addFile(path), and SparkFiles.get(name) in your functions.",
    ),
    (
        "common.config_options ConfigOption ConfigOptions",
        "Not there: a setting is named by its key. Use Configuration().set_string(key, value).",
    ),
    (
        "Configuration.get_bytearray Configuration.set_bytearray",
        "Not there: settings are text. Use set_string with base64 text.",
    ),
    ("Configuration.parse_list_value", "Not there: no setting is a list. Use value.split(';')."),
    (
        "common.input_dependency_constraint InputDependencyConstraint",
        "Not there: Spark schedules the stages of an epoch one after the other. Leave it out.",
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
        "Not there: records are copied only where they could change under an operator's hands. Leave the call out.",
    ),
    (
        "ExecutionConfig.set_latency_tracking_interval ExecutionConfig.get_latency_tracking_interval",
        "Not there. env.add_epoch_listener(function) is given the duration of every epoch.",
    ),
    (
        "ExecutionConfig.get_task_cancellation_interval ExecutionConfig.set_task_cancellation_interval "
        "ExecutionConfig.get_task_cancellation_timeout ExecutionConfig.set_task_cancellation_timeout",
        "Not there: Spark ends the tasks of a cancelled job. Leave the call out.",
    ),
    (
        "ExecutionConfig.is_use_snapshot_compression ExecutionConfig.set_use_snapshot_compression",
        "Not there. Leave the call out.",
    ),
)
"""Modules below the import root (`datastream.window`), names (`TimeWindow`) and members (`DataStream.cache`), and
what is said when a program asks for one. The names of an absent module need an entry only where a package passes
them on."""

_KEYS = "keys are numbers, strings, bytes, dates, tuples of these and the like: docs/write/keys.md"
_PRINT = "the driver prints, when the epoch is complete, so a line is never taken back"
_SLOT_NAME = "only shown in the plan: Spark gives tasks their cores"
_SETTINGS = "an unknown key is an error; spark.* goes to Spark"
_LIBRDKAFKA = "a property of librdkafka: some of Java's have other names there"

DIFFERS: dict[str, str] = {
    "AsyncFunction.timeout": "without one of its own, the error names the operator, the record and the time-out",
    "ExponentialBackoffDelayRetryStrategy": "the delay follows from a record's own attempts, not from other records'",
    "CheckpointingMode.AT_LEAST_ONCE": "accepted, and behaves as EXACTLY_ONCE",
    "ConnectedStreams.key_by": _KEYS,
    "DataStream.key_by": _KEYS,
    "DataStream.print": _PRINT,
    "DataStream.set_parallelism": "refused on a source: Spark gives it one task per input partition",
    "DataStream.slot_sharing_group": _SLOT_NAME,
    "DataStreamSink.slot_sharing_group": _SLOT_NAME,
    "DeliveryGuarantee.NONE": "no less than AT_LEAST_ONCE",
    "KafkaOffsetsInitializer.offsets": "a partition that is not named goes by the strategy, not by the group",
    "KafkaSink": "writes through confluent-kafka, with EXACTLY_ONCE from the driver; gives messages no timestamps",
    "KafkaSinkBuilder.set_property": _LIBRDKAFKA,
    "KafkaSource": "reads through confluent-kafka, not through Java's client",
    "KafkaSourceBuilder.set_bounded": "offsets must be there when the job starts",
    "KafkaSourceBuilder.set_properties": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_property": _LIBRDKAFKA,
    "KafkaSourceBuilder.set_topic_pattern": "a regular expression of Python's",
    "KafkaSourceBuilder.set_unbounded": "the job goes on when all partitions have reached their offsets",
    "JobClient.cancel": "returns when the job has stopped",
    "KeyedStream.key_by": _KEYS,
    "KeyedStream.print": _PRINT,
    "RuntimeContext.get_attempt_number": "always 0: a retried epoch is hidden from functions",
    "StreamExecutionEnvironment.add_jars": "for Spark's connectors; refused once Spark has started",
    "StreamExecutionEnvironment.add_python_file": "a file, no directory: zip it",
    "StreamExecutionEnvironment.configure": _SETTINGS,
    "StreamExecutionEnvironment.execute_async": "without a name, the setting pipeline.name is the job's name",
    "StreamExecutionEnvironment.from_collection": "may be read by several tasks",
    "StreamExecutionEnvironment.get_execution_environment": _SETTINGS,
    "StateTtlConfig.Builder.cleanup_full_snapshot": "when a base is merged; goes on in the background unless disabled",
    "StateTtlConfig.Builder.cleanup_in_rocksdb_compact_filter": "by the clock of the checkpoint, not of the machine",
    "StateTtlConfig.Builder.cleanup_incrementally": "at the end of the epoch, on every backend",
    "RuntimeExecutionMode.BATCH": "one Spark job without checkpoints; reduces give final values; nothing is sorted",
    "StreamExecutionEnvironment.set_python_executable": "refused once Spark has started",
}
"""Names and members that take the same calls but do not do the same."""
