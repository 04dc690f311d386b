"""Calls that tune Flink: accepted, remembered by their getters, and reported in one paragraph.

The values of the getters are those of PyFlink 2.3.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Configuration, Duration, InputDependencyConstraint, WatermarkStrategy, without_effect
from penstock.common.tuning import REASONS
from penstock.common.without_effect import Noted, report
from penstock.datastream import (
    EmbeddedRocksDBStateBackend,
    MemorySize,
    PredefinedOptions,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from penstock.errors import PenstockError
from penstock.testing import JobHarness


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """What the test's program calls without effect."""
    fresh = Noted()
    monkeypatch.setattr(without_effect, "_program", fresh)
    return fresh


@pytest.fixture
def env(noted: Noted) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


TUNING: list[tuple[str, str, Any, Any]] = [
    ("env.set_buffer_timeout(7)", "env.get_buffer_timeout()", 100, 7),
    ("env.enable_changelog_state_backend(True)", "env.is_changelog_state_backend_enabled()", None, True),
    ("env.enable_changelog_state_backend(False)", "env.is_changelog_state_backend_enabled()", None, False),
    ("config.disable_closure_cleaner()", "config.is_closure_cleaner_enabled()", True, False),
    ("config.enable_closure_cleaner()", "config.is_closure_cleaner_enabled()", True, True),
    ("config.set_latency_tracking_interval(10)", "config.get_latency_tracking_interval()", 0, 10),
    ("config.set_task_cancellation_interval(1)", "config.get_task_cancellation_interval()", 30_000, 1),
    ("config.set_task_cancellation_timeout(1)", "config.get_task_cancellation_timeout()", 180_000, 1),
    ("config.enable_force_kryo()", "config.is_force_kryo_enabled()", False, True),
    ("config.disable_force_kryo()", "config.is_force_kryo_enabled()", False, False),
    ("config.disable_generic_types()", "config.has_generic_types_disabled()", False, True),
    ("config.enable_generic_types()", "config.has_generic_types_disabled()", False, False),
    ("config.enable_force_avro()", "config.is_force_avro_enabled()", False, True),
    ("config.disable_force_avro()", "config.is_force_avro_enabled()", False, False),
    ("config.enable_object_reuse()", "config.is_object_reuse_enabled()", False, True),
    ("config.disable_object_reuse()", "config.is_object_reuse_enabled()", False, False),
    ("config.set_use_snapshot_compression(True)", "config.is_use_snapshot_compression()", False, True),
    ("config.register_kryo_type('A')", "config.get_registered_kryo_types()", [], ["A"]),
    ("config.register_pojo_type('A')", "config.get_registered_pojo_types()", [], ["A"]),
    ("config.add_default_kryo_serializer('A', 'S')", "config.get_default_kryo_serializer_classes()", {}, {"A": "S"}),
    (
        "config.register_type_with_kryo_serializer('A', 'S')",
        "config.get_registered_types_with_kryo_serializer_classes()",
        {},
        {"A": "S"},
    ),
    ("checkpoints.enable_unaligned_checkpoints()", "checkpoints.is_unaligned_checkpoints_enabled()", False, True),
    ("checkpoints.enable_unaligned_checkpoints()", "env.is_unaligned_checkpoints_enabled()", False, True),
    ("checkpoints.enable_unaligned_checkpoints(False)", "checkpoints.is_unaligned_checkpoints_enabled()", False, False),
    ("checkpoints.disable_unaligned_checkpoints()", "checkpoints.is_unaligned_checkpoints_enabled()", False, False),
    ("checkpoints.set_force_unaligned_checkpoints()", "checkpoints.is_force_unaligned_checkpoints()", False, True),
    ("checkpoints.set_force_unaligned_checkpoints()", "env.is_force_unaligned_checkpoints()", False, True),
    ("checkpoints.set_max_concurrent_checkpoints(2)", "checkpoints.get_max_concurrent_checkpoints()", 1, 2),
    (
        "checkpoints.set_aligned_checkpoint_timeout(Duration.of_minutes(1))",
        "checkpoints.get_aligned_checkpoint_timeout()",
        Duration.of_millis(0),
        Duration.of_minutes(1),
    ),
    (
        "checkpoints.set_alignment_timeout(Duration.of_minutes(2))",
        "checkpoints.get_aligned_checkpoint_timeout()",
        Duration.of_millis(0),
        Duration.of_minutes(2),
    ),
]


@pytest.mark.parametrize(("call", "getter", "before", "after"), TUNING, ids=[row[0] for row in TUNING])
def test_a_tuning_call_is_remembered_and_noted(
    env: StreamExecutionEnvironment, noted: Noted, call: str, getter: str, before: Any, after: Any
) -> None:
    names = {"env": env, "config": env.get_config(), "checkpoints": env.get_checkpoint_config(), "Duration": Duration}
    assert eval(getter, names) == before
    assert eval(call, names) is names[call.partition(".")[0]]
    # Each call of get_config() returns another view of the same settings.
    names |= {"config": env.get_config(), "checkpoints": env.get_checkpoint_config()}
    assert eval(getter, names) == after
    owner = {"env": "StreamExecutionEnvironment", "config": "ExecutionConfig", "checkpoints": "CheckpointConfig"}
    name = f"{owner[call.partition('.')[0]]}.{call.partition('.')[2].partition('(')[0]}"
    text = noted.paragraph()
    assert name in text
    assert REASONS[name] in text


def test_a_getter_returns_the_setting_unless_the_program_called_the_setter(env: StreamExecutionEnvironment) -> None:
    env.get_configuration().set_string("execution.buffer-timeout.interval", "50 ms")
    assert env.get_buffer_timeout() == 50
    assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1


@pytest.mark.parametrize(
    ("key", "text", "getter", "value"),
    [
        ("execution.buffer-timeout", "50 ms", "env.get_buffer_timeout()", 50),
        ("state.changelog.enabled", "true", "env.is_changelog_state_backend_enabled()", True),
        ("state.backend.changelog.enabled", "true", "env.is_changelog_state_backend_enabled()", True),
        ("pipeline.closure-cleaner-level", "NONE", "config.is_closure_cleaner_enabled()", False),
        ("pipeline.closure-cleaner-level", "TOP_LEVEL", "config.is_closure_cleaner_enabled()", True),
        ("pipeline.object-reuse", "true", "config.is_object_reuse_enabled()", True),
        ("pipeline.generic-types", "false", "config.has_generic_types_disabled()", True),
        ("metrics.latency.interval", "77", "config.get_latency_tracking_interval()", 77),
        ("task.cancellation.interval", "5", "config.get_task_cancellation_interval()", 5),
        ("task.cancellation.timeout", "6", "config.get_task_cancellation_timeout()", 6),
        ("execution.checkpointing.snapshot-compression", "true", "config.is_use_snapshot_compression()", True),
        ("execution.checkpointing.unaligned", "true", "checkpoints.is_unaligned_checkpoints_enabled()", True),
        ("execution.checkpointing.unaligned.enabled", "true", "checkpoints.is_unaligned_checkpoints_enabled()", True),
        ("execution.checkpointing.unaligned.forced", "true", "env.is_force_unaligned_checkpoints()", True),
        (
            "execution.checkpointing.alignment-timeout",
            "3 s",
            "checkpoints.get_aligned_checkpoint_timeout()",
            Duration.of_seconds(3),
        ),
        ("execution.checkpointing.max-concurrent-checkpoints", "2", "checkpoints.get_max_concurrent_checkpoints()", 2),
    ],
)
def test_a_getter_returns_the_setting(key: str, text: str, getter: str, value: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string(key, text))
    names = {"env": env, "config": env.get_config(), "checkpoints": env.get_checkpoint_config()}
    assert eval(getter, names) == value


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("env.set_buffer_timeout(-2)", "at least 0 ms, or -1"),
        ("env.from_collection([1]).set_buffer_timeout(-2)", "at least 0 ms, or -1"),
        ("env.get_checkpoint_config().set_max_concurrent_checkpoints(0)", "at least 1"),
        ("env.get_config().set_task_cancellation_timeout(-1)", "must not be negative"),
        ("env.register_slot_sharing_group('name')", r"SlotSharingGroup\.builder"),
        ("env.from_collection([1]).map(str).set_uid_hash('abc')", "32 hexadecimal digits"),
    ],
)
def test_a_value_that_flink_refuses_is_refused(env: StreamExecutionEnvironment, call: str, says: str) -> None:
    with pytest.raises(PenstockError, match=says):
        eval(call, {"env": env})


def test_one_concurrent_checkpoint_is_not_reported(env: StreamExecutionEnvironment, noted: Noted) -> None:
    env.get_checkpoint_config().set_max_concurrent_checkpoints(1)
    assert noted.paragraph() == ""


def test_the_default_local_parallelism_is_that_of_the_machine(env: StreamExecutionEnvironment) -> None:
    assert env.get_default_local_parallelism() >= 1
    env.set_default_local_parallelism(3)
    assert env.get_default_local_parallelism() == 3


def test_rocksdb_options_are_remembered(noted: Noted) -> None:
    backend = EmbeddedRocksDBStateBackend(False)
    assert not backend.is_incremental_checkpoints_enabled()
    assert EmbeddedRocksDBStateBackend(True).is_incremental_checkpoints_enabled()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED)
    assert backend.get_predefined_options() is PredefinedOptions.SPINNING_DISK_OPTIMIZED
    assert backend.get_options() is None
    backend.set_options("com.example.Factory")
    assert backend.get_options() == "com.example.Factory"
    assert [option.value for option in PredefinedOptions] == [0, 1, 2, 3]
    assert backend.settings() == EmbeddedRocksDBStateBackend().settings()
    assert "EmbeddedRocksDBStateBackend.set_predefined_options" in noted.paragraph()


class TestMemorySizes:
    def test_sizes_convert_to_units_and_round_down(self) -> None:
        size = MemorySize.of_mebi_bytes(1024)
        assert size.get_bytes() == 1 << 30
        assert (size.get_kibi_bytes(), size.get_mebi_bytes()) == (1 << 20, 1024)
        assert (size.get_gibi_bytes(), size.get_tebi_bytes()) == (1, 0)

    def test_a_size_prints_in_the_largest_unit_that_divides_it(self) -> None:
        sizes = (1024, 3 << 20, 1500, 0, 1 << 30, 1 << 40)
        texts = ["1 kb", "3 mb", "1500 bytes", "0 bytes", "1 gb", "1 tb"]
        assert [str(MemorySize(bytes_size=size)) for size in sizes] == texts

    def test_sizes_compare_by_bytes(self) -> None:
        one, other = MemorySize(bytes_size=1 << 20), MemorySize.of_mebi_bytes(1)
        assert one == other
        assert hash(one) == hash(other)
        assert MemorySize(bytes_size=1) < one <= other
        with pytest.raises(TypeError, match="compared with another"):
            _ = one < 3  # type: ignore[operator]

    def test_a_negative_size_is_refused(self) -> None:
        with pytest.raises(ValueError, match="must not be negative"):
            MemorySize(bytes_size=-1)


class TestSlotSharingGroups:
    def test_a_group_has_the_resources_of_its_builder(self) -> None:
        builder = SlotSharingGroup.builder("a").set_cpu_cores(1).set_task_heap_memory_mb(100)
        group = builder.set_external_resource("gpu", 2.0).build()
        assert (group.get_name(), group.get_cpu_cores(), str(group.get_task_heap_memory())) == ("a", 1.0, "100 mb")
        assert group.get_managed_memory() == group.get_task_off_heap_memory() == MemorySize(bytes_size=0)
        assert group.get_external_resources() == {"gpu": 2.0}
        assert group == builder.build()
        assert hash(group) == hash(builder.build())
        assert group != builder.set_managed_memory_mb(1).build()

    def test_a_group_without_resources_has_none(self) -> None:
        group = SlotSharingGroup.builder("b").build()
        assert group.get_cpu_cores() is None
        assert group.get_task_heap_memory() is group.get_task_off_heap_memory() is group.get_managed_memory() is None
        assert group.get_external_resources() == {}

    @pytest.mark.parametrize(
        "build",
        [
            lambda builder: builder.set_cpu_cores(1.0).build(),
            lambda builder: builder.set_task_heap_memory_mb(100).build(),
            lambda builder: builder.set_task_off_heap_memory_mb(100).build(),
            lambda builder: builder.set_cpu_cores(0.0),
            lambda builder: builder.set_task_heap_memory(MemorySize(bytes_size=0)),
        ],
    )
    def test_resources_without_cores_or_heap_memory_are_refused(self, build: Callable[[Any], Any]) -> None:
        with pytest.raises(PenstockError, match=r"(?i)slot sharing group"):
            build(SlotSharingGroup.builder("a"))

    def test_an_operator_can_be_in_a_group_with_resources(self, env: StreamExecutionEnvironment, noted: Noted) -> None:
        group = SlotSharingGroup.builder("large").set_cpu_cores(2).set_task_heap_memory_mb(10).build()
        assert env.register_slot_sharing_group(group) is env
        env.from_collection([1]).map(str).slot_sharing_group(group).print()
        assert '"slot_sharing_group": "large"' in env.get_execution_plan()
        assert "register_slot_sharing_group" in noted.paragraph()


def test_calls_on_streams_keep_the_records(env: StreamExecutionEnvironment, noted: Noted) -> None:
    aligned = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "group", Duration.of_seconds(1), Duration.of_seconds(1)
    )
    assert aligned == WatermarkStrategy.for_monotonous_timestamps()
    numbers = env.from_collection([1, 2]).map(lambda n: n).set_buffer_timeout(10).set_uid_hash("0" * 32)
    with JobHarness(numbers.cache().map(lambda n: n + 1)) as job:
        assert job.run() == [2, 3]
    text = noted.paragraph()
    for name in ("set_buffer_timeout", "set_uid_hash", "cache", "WatermarkStrategy.with_watermark_alignment"):
        assert name in text


def test_a_cached_stream_can_be_invalidated(env: StreamExecutionEnvironment) -> None:
    cached = env.from_collection([1, 2]).cache()
    cached.invalidate()
    with JobHarness(cached) as job:
        assert job.run() == [1, 2]


def test_the_input_dependency_constraint_is_only_a_name() -> None:
    assert [each.value for each in InputDependencyConstraint] == [0, 1]


def test_calls_are_reported_once_in_one_paragraph(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.set_buffer_timeout(10).set_buffer_timeout(20)
    env.get_config().enable_object_reuse().enable_force_kryo()
    with caplog.at_level(logging.INFO, "penstock"):
        report()
        report()
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.getMessage().count("set_buffer_timeout") == 1
    assert "enable_object_reuse" in record.getMessage()
    assert "\n" not in record.getMessage()
