"""A program that sets thirty tuning options of Flink, which change nothing here."""

from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import (
    EmbeddedRocksDBStateBackend,
    PredefinedOptions,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)


def program() -> StreamExecutionEnvironment:
    """Return the environment of the job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.set_buffer_timeout(100)
    env.enable_changelog_state_backend(True)
    env.set_default_local_parallelism(2)
    large = SlotSharingGroup.builder("large").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build()
    env.register_slot_sharing_group(large)
    env.add_jars("file:///opt/flink-sql-connector-kafka-3.1.0-1.18.jar")

    config = env.get_config()
    config.enable_object_reuse()
    config.disable_object_reuse()
    config.enable_closure_cleaner()
    config.disable_closure_cleaner()
    config.set_latency_tracking_interval(1000)
    config.set_use_snapshot_compression(True)
    config.set_task_cancellation_interval(1000)
    config.set_task_cancellation_timeout(1000)
    config.disable_generic_types()
    config.enable_generic_types()
    config.enable_force_kryo()
    config.disable_force_kryo()
    config.enable_force_avro()
    config.disable_force_avro()
    config.register_kryo_type("com.example.Order")
    config.add_default_kryo_serializer("com.example.Order", "com.example.OrderSerializer")

    checkpoints = env.get_checkpoint_config()
    checkpoints.enable_unaligned_checkpoints()
    checkpoints.disable_unaligned_checkpoints()
    checkpoints.set_force_unaligned_checkpoints()
    checkpoints.set_aligned_checkpoint_timeout(Duration.of_seconds(30))
    checkpoints.set_max_concurrent_checkpoints(2)

    backend = EmbeddedRocksDBStateBackend(False)
    backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.SPINNING_DISK_OPTIMIZED

    aligned = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "group", Duration.of_seconds(1), Duration.of_seconds(1)
    )
    numbers = env.from_collection([1, 2, 3]).assign_timestamps_and_watermarks(aligned)
    doubled = numbers.map(lambda n: n * 2).set_buffer_timeout(10).slot_sharing_group(large).set_uid_hash("0" * 32)
    doubled.cache().print()
    return env


if __name__ == "__main__":
    program().execute("tuned")
