"""A Kafka job as PyFlink tutorials write it: the last seconds' amounts per user, with much tuning."""

import sys

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.datastream.window import TumblingEventTimeWindows


def program(servers: str, topic: str, checkpoints: str) -> StreamExecutionEnvironment:
    """Return the environment of the job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_jars("file:///opt/flink/flink-sql-connector-kafka-3.1.0-1.18.jar")
    env.set_parallelism(2)
    env.set_buffer_timeout(100)
    env.get_config().set_auto_watermark_interval(200)
    env.enable_checkpointing(10000, CheckpointingMode.EXACTLY_ONCE)
    cc = env.get_checkpoint_config()
    cc.set_min_pause_between_checkpoints(5000)
    cc.set_checkpoint_timeout(60000)
    cc.set_max_concurrent_checkpoints(1)
    cc.enable_unaligned_checkpoints()
    cc.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    env.set_state_backend(EmbeddedRocksDBStateBackend(True))
    cc.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoints))
    payment = Types.ROW_NAMED(["user", "amount", "ts"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_group_id("g")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_property("max.poll.records", "500")
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(payment).build())
        .build()
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).with_timestamp_assigner(
        lambda row, _: row.ts
    )
    payments = env.from_source(source, strategy, "kafka")
    payments.key_by(lambda row: row.user).window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(
        lambda a, b: Row(a.user, a.amount + b.amount, b.ts)
    ).print()
    return env


if __name__ == "__main__":
    program(*sys.argv[1:]).execute("kafka job")
