"""Calls of PyFlink 1 and 2 that have a meaning: storage, retention, listeners, files, configuration."""

import copy
import importlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import ConfigOptions, Configuration, RestartStrategies, Types, TypeSerializer, without_effect
from penstock.common.constants import DEFAULT_OUTPUT_TAG
from penstock.common.job import JobExecutionResult, JobStatus
from penstock.common.serialization import Encoder
from penstock.common.without_effect import Noted
from penstock.connectors.driver_sinks import CollectSink
from penstock.datastream import (
    CountWindow,
    CustomCheckpointStorage,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    GlobalWindow,
    HashMapStateBackend,
    JobListener,
    JobManagerCheckpointStorage,
    KeyedStream,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeCharacteristic,
    TimeWindow,
)
from penstock.datastream import environment as environment_module
from penstock.datastream.connectors.base import StreamTransformer, SupportsPreprocessing
from penstock.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileEnumeratorProvider,
    FileSource,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from penstock.datastream.dependencies import CachedFile, _named_copy, configured_dependencies
from penstock.datastream.functions import AsyncFunctionDescriptor
from penstock.datastream.window import CountWindowSerializer, GlobalWindowSerializer, TimeWindowSerializer
from penstock.errors import PenstockError
from penstock.runtime.windows.assigners import SlidingProcessingTimeWindows, TumblingProcessingTimeWindows
from penstock.state.backend_settings import backend_settings
from penstock.testing import JobHarness


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    fresh = Noted()
    monkeypatch.setattr(without_effect, "_program", fresh)
    return fresh


@pytest.fixture
def env(noted: Noted) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        # PyFlink 2.3 has these names in two places, PyFlink 1 in more.
        (
            "penstock.datastream.connectors",
            "BucketAssigner DynamicKafkaSource FileSink FileSource FlinkKafkaConsumer KafkaOffsetsInitializer "
            "KafkaRecordSerializationSchema KafkaSink KafkaSource NumberSequenceSource OutputFileConfig RollingPolicy "
            "Semantic StreamFormat StreamingFileSink",
        ),
        (
            "penstock.common",
            "CsvRowDeserializationSchema CsvRowSerializationSchema JsonRowDeserializationSchema "
            "JsonRowSerializationSchema",
        ),
        (
            "penstock.common.serialization",
            "CsvRowDeserializationSchema CsvRowSerializationSchema JsonRowDeserializationSchema "
            "JsonRowSerializationSchema",
        ),
    ],
)
def test_programs_import_names_from_where_pyflink_has_them(module: str, names: str) -> None:
    found = importlib.import_module(module)
    homes = ("connectors.file_system", "connectors.kafka", "connectors.dynamic_kafka", "connectors.number_seq")
    known: dict[str, Any] = {}
    for home in (*homes, "formats.csv", "formats.json"):
        known |= vars(importlib.import_module(f"penstock.datastream.{home}"))
    for name in names.split():
        assert getattr(found, name) is known[name]


class TestCheckpointStorage:
    def test_the_storage_of_files_has_flinks_values(self) -> None:
        storage = FileSystemCheckpointStorage("file:///tmp/ck/")
        assert storage.get_checkpoint_path() == "file:/tmp/ck"
        assert storage.get_savepoint_path() is None
        assert (storage.get_min_file_size_threshold(), storage.get_write_buffer_size()) == (20_480, 4096)
        storage = FileSystemCheckpointStorage("s3://bucket/ck", 100, 5000)
        assert storage.get_checkpoint_path() == "s3://bucket/ck"
        assert (storage.get_min_file_size_threshold(), storage.get_write_buffer_size()) == (100, 5000)
        assert FileSystemCheckpointStorage.MAX_FILE_STATE_THRESHOLD == 1 << 20

    def test_invalid_storages_are_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(ValueError, match="needs a checkpoint_path"):
            FileSystemCheckpointStorage(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="between -1 and 1,048,576, not 2,000,000"):
            FileSystemCheckpointStorage("file:///tmp/ck", 2_000_000)
        with pytest.raises(PenstockError, match="wraps a Java object"):
            CustomCheckpointStorage()
        with pytest.raises(PenstockError, match="set_checkpoint_storage_dir"):
            env.get_checkpoint_config().set_checkpoint_storage("file:///tmp/ck")  # type: ignore[arg-type]

    def test_the_storage_of_the_job_manager_has_flinks_values(self) -> None:
        storage = JobManagerCheckpointStorage()
        assert (storage.get_checkpoint_path(), storage.get_savepoint_path()) == (None, None)
        assert storage.get_max_state_size() == JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE == 5 << 20
        storage = JobManagerCheckpointStorage("file:///tmp/a", 100)
        assert (storage.get_checkpoint_path(), storage.get_max_state_size()) == ("file:/tmp/a", 100)
        assert str(JobManagerCheckpointStorage()).endswith("( maxStateSize: 5242880)")

    def test_checkpoints_go_to_the_directory(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        checkpoints = env.get_checkpoint_config()
        assert checkpoints.get_checkpoint_storage() is None
        storage = FileSystemCheckpointStorage(f"file://{tmp_path}")
        assert checkpoints.set_checkpoint_storage(storage) is checkpoints
        env.set_state_backend(HashMapStateBackend())
        found = checkpoints.get_checkpoint_storage()
        assert isinstance(found, FileSystemCheckpointStorage)
        assert found.get_checkpoint_path() == f"file:{tmp_path}"
        assert env.get_configuration().to_dict()["state.checkpoints.dir"] == f"file://{tmp_path}"
        assert backend_settings(env.get_configuration())[1]

    def test_a_directory_can_be_set_alone(self, env: StreamExecutionEnvironment) -> None:
        env.get_checkpoint_config().set_checkpoint_storage_dir("file:///data/ck")
        assert env.get_configuration().to_dict()["state.checkpoints.dir"] == "file:///data/ck"

    def test_the_job_manager_keeps_checkpoints_in_memory_with_any_backend(
        self, env: StreamExecutionEnvironment
    ) -> None:
        env.get_checkpoint_config().set_checkpoint_storage_dir("file:///data/ck")
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=100))
        env.enable_checkpointing(1000).set_state_backend(HashMapStateBackend())
        backend, in_files = backend_settings(env.get_configuration())
        assert (backend.name, in_files) == ("memory", False)
        found = env.get_checkpoint_config().get_checkpoint_storage()
        assert isinstance(found, JobManagerCheckpointStorage)
        assert found.get_max_state_size() == 100


class TestRetention:
    @pytest.mark.parametrize("cleanup", list(ExternalizedCheckpointCleanup))
    def test_the_methods_of_pyflink_1_set_the_retention(
        self, env: StreamExecutionEnvironment, cleanup: ExternalizedCheckpointCleanup
    ) -> None:
        checkpoints = env.get_checkpoint_config()
        assert checkpoints.enable_externalized_checkpoints(cleanup) is checkpoints
        assert checkpoints.get_externalized_checkpoint_cleanup() is cleanup
        assert checkpoints.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention[cleanup.name]
        external = cleanup is not ExternalizedCheckpointCleanup.NO_EXTERNALIZED_CHECKPOINTS
        assert checkpoints.is_externalized_checkpoints_enabled() is external

    def test_no_externalized_checkpoints_is_the_default(self, env: StreamExecutionEnvironment) -> None:
        checkpoints = env.get_checkpoint_config()
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        assert checkpoints.get_externalized_checkpoint_retention() == none
        assert not checkpoints.is_externalized_checkpoints_enabled()
        assert not checkpoints.set_externalized_checkpoint_retention(none).is_externalized_checkpoints_enabled()

    def test_the_retention_of_flink_2_is_accepted_too(self, env: StreamExecutionEnvironment) -> None:
        checkpoints = env.get_checkpoint_config()
        checkpoints.set_externalized_checkpoint_cleanup(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        assert checkpoints.get_externalized_checkpoint_cleanup().name == "RETAIN_ON_CANCELLATION"


class TestConfiguration:
    def filled(self) -> Configuration:
        configuration = Configuration().set_string("str", "v1").set_integer("int", 2).set_boolean("bool", True)
        return configuration.set_float("float", 0.5).set_bytearray("bytes", bytearray([1, 2, 3]))

    def test_values_are_read_as_they_were_set(self) -> None:
        filled = self.filled()
        assert filled.get_string("str", "") == "v1"
        assert filled.get_integer("int", 0) == 2
        assert filled.get_boolean("bool", False) is True
        assert filled.get_float("float", 0) == 0.5
        assert filled.get_bytearray("bytes", bytearray()) == bytearray([1, 2, 3])
        assert filled.get_bytearray("none", bytearray([9])) == bytearray([9])

    def test_values_have_the_text_of_flink(self) -> None:
        texts = {"str": "v1", "int": "2", "bool": "true", "float": "0.5", "bytes": "!!binary |-\n  AQID"}
        assert self.filled().to_dict() == texts
        assert Configuration().set_float("f", 1e20).get_string("f", "") == "1.0E20"
        assert Configuration().set_float("f", 1).get_string("f", "") == "1.0"

    def test_a_dict_receives_values_with_their_types(self) -> None:
        target: dict[str, Any] = {"other": 1}
        self.filled().add_all_to_dict(target)
        values = {"str": "v1", "int": 2, "bool": True, "float": 0.5, "bytes": b"\x01\x02\x03"}
        assert target == {"other": 1, **values}

    def test_text_shows_all_settings_and_hides_secrets(self) -> None:
        assert str(Configuration()) == "{}"
        assert str(Configuration().set_string("k1", "v1").set_integer("k2", 1)) == "{k1=v1, k2=1}"
        assert "hidden" not in str(Configuration().set_string("s3.password", "hidden"))

    def test_configurations_with_equal_values_are_equal(self) -> None:
        one, other = Configuration().set_integer("k", 1), Configuration().set_integer("k", 1)
        assert one == other
        assert hash(one) == hash(other) == hash(Configuration().set_string("k", "1"))
        assert one != Configuration().set_string("k", "1")
        assert one != 3
        assert copy.deepcopy(one) == one == Configuration(one)
        assert Configuration().add_all(one) == one
        assert Configuration().add_all(one, "p.") == Configuration().set_integer("p.k", 1)
        assert one.remove_config("k")
        assert one == Configuration()

    @pytest.mark.parametrize(
        ("text", "elements"),
        [
            ("a;b", ["a", "b"]),
            ("[a, b]", ["a", "b"]),
            ("['a;b', \"c\"]", ["a;b", "c"]),
            ("- a\n- b", ["a", "b"]),
            ("a", ["a"]),
            ("a,b", ["a,b"]),
            ("", []),
            (None, []),
        ],
    )
    def test_lists_are_parsed(self, text: str | None, elements: list[str]) -> None:
        assert Configuration.parse_list_value(text) == elements

    def test_text_that_is_not_binary_is_refused(self) -> None:
        with pytest.raises(PenstockError, match="The value of k is not binary"):
            Configuration().set_string("k", "not binary!").get_bytearray("k", bytearray())


class TestExecutionConfig:
    def test_configs_with_the_same_settings_are_equal(self, env: StreamExecutionEnvironment) -> None:
        other = StreamExecutionEnvironment.get_execution_environment()
        assert env.get_config() == env.get_config() == other.get_config()
        assert hash(env.get_config()) == hash(other.get_config())
        env.get_config().set_parallelism(12)
        other.get_config().set_parallelism(11)
        assert env.get_config() != other.get_config()
        other.get_config().set_parallelism(12)
        assert env.get_config() == other.get_config()
        env.get_config().enable_object_reuse()
        assert env.get_config() != other.get_config()
        other.get_config().enable_object_reuse().set_global_job_parameters({"a": 1})
        assert env.get_config() != other.get_config()

    def test_job_parameters_come_from_the_setting_or_from_the_program(self) -> None:
        configuration = Configuration().set_string("pipeline.global-job-parameters", "a:b,n:1")
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        assert env.get_config().get_global_job_parameters() == {"a": "b", "n": "1"}
        plain = StreamExecutionEnvironment.get_execution_environment()
        plain.get_config().set_global_job_parameters({"a": "b", "n": 1})
        assert plain.get_config().get_global_job_parameters() == env.get_config().get_global_job_parameters()

        class Parameter(MapFunction):
            def open(self, runtime_context: RuntimeContext) -> None:
                self.read = runtime_context.get_job_parameter

            def map(self, value: str) -> str:
                return self.read(value, "none")

        with JobHarness(env.from_collection(["a", "n", "x"]).map(Parameter())) as job:
            assert job.run() == ["b", "1", "none"]
        env.get_config().set_global_job_parameters({"x": "y"})
        assert env.get_config().get_global_job_parameters() == {"x": "y"}
        env.configure(Configuration().set_string("pipeline.global-job-parameters", "q:r"))
        assert env.get_config().get_global_job_parameters() == {"q": "r"}

    def test_the_execution_config_sets_the_restart_strategy(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_config()
        assert config.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10_000)) is config
        assert config.get_restart_strategy() == env.get_restart_strategy()
        assert config.get_restart_strategy().get_restart_attempts() == 3  # type: ignore[attr-defined]


class Listener(JobListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any, Any]] = []

    def on_job_submitted(self, job_client: Any, throwable: Any) -> None:
        self.heard.append(("submitted", job_client, throwable))

    def on_job_executed(self, job_execution_result: Any, throwable: Any) -> None:
        self.heard.append(("executed", job_execution_result, throwable))


class Client:
    """A client of a job that has ended."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def result(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class TestJobListeners:
    def submitted(self, monkeypatch: pytest.MonkeyPatch, outcome: Callable[[], Any]) -> None:
        monkeypatch.setattr(environment_module, "submit", lambda *_: outcome())

    def test_listeners_hear_the_start_and_the_end_of_a_job(
        self, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = Client(JobExecutionResult.__new__(JobExecutionResult))
        self.submitted(monkeypatch, lambda: client)
        listener = Listener()
        env.register_job_listener(listener)
        env.register_job_listener(1)
        assert env.get_job_listeners() == [listener, 1]
        env.from_collection([1]).print()
        env.execute()
        assert listener.heard == [("submitted", client, None), ("executed", client.outcome, None)]
        env.clear_job_listeners()
        assert env.get_job_listeners() == []

    def test_listeners_hear_of_a_job_that_fails(
        self, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = Client(PenstockError("no"))
        self.submitted(monkeypatch, lambda: client)
        listener = Listener()
        env.register_job_listener(listener)
        env.from_collection([1]).print()
        with pytest.raises(PenstockError, match="no"):
            env.execute()
        assert listener.heard == [("submitted", client, None), ("executed", None, client.outcome)]

    def test_listeners_hear_of_a_job_that_cannot_start(
        self, env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        error = PenstockError("no")

        def fail() -> Any:
            raise error

        self.submitted(monkeypatch, fail)
        listener = Listener()
        env.register_job_listener(listener)
        env.from_collection([1]).print()
        with pytest.raises(PenstockError, match="no"):
            env.execute_async()
        assert listener.heard == [("submitted", None, error)]

    def test_a_class_is_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(PenstockError, match=r"Write register_job_listener\(Listener\(\)\)"):
            env.register_job_listener(Listener)


class TestTimeCharacteristic:
    def test_the_time_characteristic_chooses_the_time_of_window_shortcuts(
        self, env: StreamExecutionEnvironment
    ) -> None:
        assert env.get_stream_time_characteristic() is TimeCharacteristic.EventTime
        env.set_stream_time_characteristic(TimeCharacteristic.ProcessingTime)
        stream = env.from_collection([1])
        keyed = stream.key_by(lambda n: n)
        from penstock.common import Time

        second = Time.seconds(1)
        assert isinstance(keyed.time_window(second)._assigner, TumblingProcessingTimeWindows)
        assert isinstance(stream.time_window_all(Time.seconds(2), second)._assigner, SlidingProcessingTimeWindows)

    def test_ingestion_time_is_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(PenstockError, match="assign timestamps"):
            env.set_stream_time_characteristic(TimeCharacteristic.IngestionTime)


class TestFiles:
    def test_a_cached_file_is_shipped_under_its_name(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        env.register_cached_file(f"file://{tmp_path}/a.txt", "words", True)
        (cached,) = env._dependencies.cached
        assert cached == CachedFile(str(tmp_path / "a.txt"), "words", True)
        copied = _named_copy(cached)
        assert (copied.name, copied.read_text(), os.access(copied, os.X_OK)) == ("words", "text", True)

    def test_a_folder_can_be_cached(self, tmp_path: Path) -> None:
        (tmp_path / "in" / "deep").mkdir(parents=True)
        (tmp_path / "in" / "deep" / "a.txt").write_text("text")
        copied = _named_copy(CachedFile(str(tmp_path / "in"), "words", False))
        assert (copied / "deep" / "a.txt").read_text() == "text"

    def test_a_setting_names_cached_files(self, tmp_path: Path) -> None:
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).touch()
        text = f"name:a,path:'file://{tmp_path}/a.txt',executable:true;name:b,path:{tmp_path}/b.txt"
        configured = configured_dependencies(Configuration().set_string("pipeline.cached-files", text))
        a, b = CachedFile(f"{tmp_path}/a.txt", "a", True), CachedFile(f"{tmp_path}/b.txt", "b", False)
        assert configured.cached == (a, b)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("name:a", "has the entry 'name:a'. Give each entry a name and a path"),
            ("name:a,path:/x,mode:7", "has the entry"),
            ("name:a,path:/etc,executable:maybe", "pipeline.cached-files is 'maybe'"),
            ("name:a,path:/no/such", "pipeline.cached-files: file '/no/such' does not exist"),
            ("words", "pipeline.cached-files is 'words'"),
        ],
    )
    def test_invalid_entries_of_the_setting_are_refused(self, text: str, says: str) -> None:
        with pytest.raises(PenstockError, match=re.escape(says)):
            configured_dependencies(Configuration().set_string("pipeline.cached-files", text))

    def test_invalid_cached_files_are_refused(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        with pytest.raises(PenstockError, match="does not exist"):
            env.register_cached_file(str(tmp_path / "none"), "a")
        with pytest.raises(PenstockError, match="not a plain file name"):
            env.register_cached_file(str(tmp_path), "../a")
        env.register_cached_file(str(tmp_path), "a")
        with pytest.raises(PenstockError, match="the same name"):
            env.register_cached_file("/etc", "a")

    def test_class_paths_go_to_both_jvms(self, env: StreamExecutionEnvironment) -> None:
        env.add_classpaths("file:///opt/x.jar", "/opt/y")
        env.add_classpaths("file:///opt/z.jar")
        settings = env.get_configuration().to_dict()
        for key in ("spark.driver.extraClassPath", "spark.executor.extraClassPath"):
            assert settings[key] == "/opt/x.jar:/opt/y:/opt/z.jar"

    def test_flinks_jars_are_left_out(self, env: StreamExecutionEnvironment, noted: Noted, tmp_path: Path) -> None:
        own = tmp_path / "own.jar"
        own.touch()
        env.add_jars("file:///opt/flink-sql-connector-kafka-3.1.0-1.18.jar", f"file://{own}")
        env.add_jars("file:///opt/kafka-clients-3.4.0.jar")
        assert env.get_configuration().to_dict()["spark.jars"] == f"file://{own}"
        text = noted.paragraph()
        assert "add_jars(flink-sql-connector-kafka-3.1.0-1.18.jar)" in text
        assert "kafka-clients-3.4.0.jar" in text

    def test_enumerators_and_compaction_have_no_effect(
        self, env: StreamExecutionEnvironment, noted: Noted, tmp_path: Path
    ) -> None:
        (tmp_path / "in.txt").write_text("a\nb\n")
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in.txt"))
        source.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator()).build()
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_num_compact_threads(2)
        compactor = FileCompactor.concat_file_compactor(b"\n")
        encoder = Encoder.simple_string_encoder()
        builder = StreamingFileSink.for_row_format(str(tmp_path / "out"), encoder)
        builder.with_rolling_policy(policy=RollingPolicy.default_rolling_policy())
        sink = builder.enable_compact(strategy.set_size_threshold(10).build(), compactor).build()
        env.from_collection(["a"], Types.STRING()).add_sink(sink)
        with JobHarness(env) as job:
            job.run()
        (file,) = (tmp_path / "out").rglob("part-*")
        assert file.read_text() == "a\n"
        text = noted.paragraph()
        assert "FileEnumeratorProvider.default_splittable_file_enumerator" in text
        assert "enable_compact" in text

    def test_an_invalid_compaction_is_refused(self) -> None:
        with pytest.raises(PenstockError, match="needs a condition"):
            FileCompactStrategy.builder().build()
        with pytest.raises(PenstockError, match="must be positive"):
            FileCompactStrategy.builder().set_size_threshold(0)
        assert isinstance(FileCompactor.identical_file_compactor(), FileCompactor)


class TestNamesOfPyFlinksOwnCode:
    def test_a_suspended_job_is_terminal_here_but_not_everywhere(self) -> None:
        ended = [status for status in JobStatus if status.is_globally_terminal_state()]
        assert ended == [JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED]
        here = {status for status in JobStatus if status.is_terminal_state()}
        assert here == {*ended, JobStatus.SUSPENDED}

    def test_options_have_a_key_a_type_and_a_default(self) -> None:
        option = ConfigOptions.key("a").int_type().default_value(3)
        assert (option.key, option.kind, option.default) == ("a", int, 3)
        assert repr(ConfigOptions.key("b").string_type().no_default_value()) == "ConfigOption('b', str, None)"
        builder = ConfigOptions.key("c")
        typed = (builder.boolean_type(), builder.long_type(), builder.float_type(), builder.double_type())
        assert [each.no_default_value().kind for each in typed] == [bool, int, float, float]

    @pytest.mark.parametrize(
        ("serializer", "window"),
        [
            (TimeWindowSerializer(), TimeWindow(-5, 10)),
            (CountWindowSerializer(), CountWindow(7)),
            (GlobalWindowSerializer(), GlobalWindow.get()),
        ],
    )
    def test_window_serializers_write_to_a_stream(self, serializer: Any, window: Any) -> None:
        stream = io.BytesIO()
        serializer.serialize(window, stream)
        serializer.serialize(window, stream)
        stream.seek(0)
        assert [serializer.deserialize(stream), serializer.deserialize(stream)] == [window, window]
        assert isinstance(serializer, TypeSerializer)

    def test_types_do_not_convert_values(self) -> None:
        kind = Types.LIST(Types.INT())
        value = [1]
        assert not kind.need_conversion()
        assert kind.to_internal_type(value) is kind.from_internal_type(value) is value

    def test_enums_have_pyflinks_members(self) -> None:
        assert [each.name for each in KeyedStream.AccumulateType] == ["MIN", "MAX", "MIN_BY", "MAX_BY", "SUM"]
        assert [each.value for each in AsyncFunctionDescriptor.OutputMode] == [0, 1]
        assert DEFAULT_OUTPUT_TAG == ""

    def test_a_sink_can_transform_its_stream(self, env: StreamExecutionEnvironment) -> None:
        class Doubling(StreamTransformer):
            def apply(self, ds: Any) -> Any:
                return ds.map(lambda n: n * 2)

        class Doubled(CollectSink, SupportsPreprocessing):
            def get_transformer(self) -> StreamTransformer:
                return Doubling()

        sink = Doubled()
        env.from_collection([1, 2]).sink_to(sink)
        with JobHarness(env) as job:
            job.run()
        assert sink.results.get_nowait() == [2, 4]

    def test_an_async_function_descriptor_holds_its_arguments(self) -> None:
        mode = AsyncFunctionDescriptor.OutputMode.ORDERED
        descriptor = AsyncFunctionDescriptor("function", 1, 2, "strategy", mode)  # type: ignore[arg-type]
        assert (descriptor.timeout, descriptor.capacity, descriptor.output_mode) == (1, 2, mode)
