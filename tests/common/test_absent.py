"""PyFlink names that Penstock lacks: the error names the alternative, and everything else behaves normally."""

import copy
import importlib
import pickle
import sys

import pytest

import penstock.datastream
import penstock.datastream.functions
from penstock.absent import AbsentAttribute, AbsentImport, AbsentName
from penstock.common import Configuration, RowKind
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError


class TestNames:
    def test_importing_an_absent_name_from_a_package_names_the_alternative(self) -> None:
        with pytest.raises(
            AbsentImport, match=r"penstock\.datastream\.SlotSharingGroup: Not available: Spark assigns cores"
        ):
            from penstock.datastream import SlotSharingGroup  # noqa: F401

    def test_importing_an_absent_name_from_a_plain_module_names_the_alternative(self) -> None:
        with pytest.raises(
            AbsentImport, match=r"functions\.AsyncFunctionDescriptor: Not available: .* PyFlink internal"
        ):
            from penstock.datastream.functions import AsyncFunctionDescriptor  # noqa: F401

    def test_reading_an_absent_name_as_an_attribute_names_the_alternative(self) -> None:
        for module in (penstock.datastream, penstock.datastream.functions):
            with pytest.raises(AbsentAttribute, match="Not available: it is a PyFlink internal"):
                _ = module.AsyncFunctionDescriptor
            assert not hasattr(module, "AsyncFunctionDescriptor")
            assert getattr(module, "AsyncFunctionDescriptor", 7) == 7

    def test_an_absent_name_raises_both_a_penstock_error_and_an_import_error(self) -> None:
        assert issubclass(AbsentName, PenstockError)
        with pytest.raises(ImportError):
            from penstock.common import ConfigOptions  # noqa: F401

    def test_a_name_unknown_to_pyflink_raises_an_ordinary_error(self) -> None:
        with pytest.raises(ImportError, match="cannot import name 'Nonsense'") as raised:
            from penstock.datastream import Nonsense  # noqa: F401
        assert not isinstance(raised.value, PenstockError)
        with pytest.raises(AttributeError, match=r"module 'penstock\.datastream' has no attribute 'Nonsense'") as other:
            _ = penstock.datastream.Nonsense
        assert not isinstance(other.value, PenstockError)


class TestNamesOfEarlierVersions:
    @pytest.mark.parametrize(
        ("call", "says"),
        [
            ("env.set_stream_time_characteristic(1)", "a program uses event time if it assigns timestamps"),
            ("env.get_config().set_restart_strategy(1)", r"env\.set_restart_strategy\("),
            ("env.get_checkpoint_config().set_checkpoint_storage_dir('d')", r"state\.checkpoints\.dir"),
            ("env.get_checkpoint_config().enable_externalized_checkpoints(1)", "ExternalizedCheckpointRetention"),
            ("env.read_text_file('t')", r"FileSource\.for_record_stream_format"),
            ("env.generate_sequence(1, 2)", r"env\.from_sequence"),
            ("env.register_job_listener(1)", r"env\.add_epoch_listener"),
            ("env.from_collection([1]).iterate()", "in state"),
        ],
    )
    def test_a_member_of_an_earlier_pyflink_names_its_replacement(self, call: str, says: str) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(AbsentAttribute, match=says):
            eval(call, {"env": env})

    @pytest.mark.parametrize("name", ["TimeCharacteristic", "ExternalizedCheckpointCleanup"])
    def test_a_name_of_an_earlier_pyflink_is_reported_as_removed(self, name: str) -> None:
        with pytest.raises(AbsentImport, match=f"{name}: Removed in Flink 2"):
            exec(f"from penstock.datastream import {name}")


class TestModules:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("penstock.table", "Penstock has no Table API"),
            ("penstock.table.udf", "Penstock has no Table API"),
            ("penstock.datastream.slot_sharing_group", "Spark assigns cores"),
            ("penstock.datastream.connectors.pulsar", r"env\.from_spark\(env\.spark\.readStream\.format\('pulsar'\)"),
            ("penstock.java_gateway", "Penstock objects do not wrap Java objects"),
        ],
    )
    def test_importing_an_absent_module_names_the_alternative(self, name: str, says: str) -> None:
        with pytest.raises(AbsentImport, match=says):
            importlib.import_module(name)
        assert name not in sys.modules

    def test_importing_an_absent_module_from_its_package_names_the_alternative(self) -> None:
        with pytest.raises(AbsentImport, match="Spark assigns cores"):
            from penstock.datastream import slot_sharing_group  # noqa: F401

    def test_reading_an_absent_module_as_an_attribute_names_the_alternative(self) -> None:
        with pytest.raises(AbsentAttribute, match="Spark assigns cores"):
            _ = penstock.datastream.slot_sharing_group

    def test_a_module_unknown_to_pyflink_raises_an_ordinary_error(self) -> None:
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'penstock\.nonsense'") as raised:
            importlib.import_module("penstock.nonsense")
        assert not isinstance(raised.value, PenstockError)


class TestMembers:
    def test_an_absent_method_of_an_object_names_the_alternative(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(
            AbsentAttribute, match=r"StreamExecutionEnvironment\.set_buffer_timeout: .* Remove the call"
        ):
            env.set_buffer_timeout(100)  # type: ignore[attr-defined]
        assert not hasattr(env, "set_buffer_timeout")

    def test_an_absent_method_is_reported_under_the_name_of_the_subclass(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        keyed = env.from_collection([1]).key_by(lambda value: value)
        with pytest.raises(AbsentAttribute, match=r"KeyedStream\.cache: Not available: a job computes its streams"):
            keyed.cache()  # type: ignore[attr-defined]

    def test_an_absent_method_of_a_class_names_the_alternative(self) -> None:
        with pytest.raises(AbsentAttribute, match=r"Configuration\.parse_list_value"):
            Configuration.parse_list_value("a;b")  # type: ignore[attr-defined]

    def test_an_enum_with_absent_methods_keeps_its_members(self) -> None:
        assert len(RowKind) == 4
        assert not hasattr(RowKind.INSERT, "to_j_row_kind")

    def test_a_subclass_can_define_an_absent_method(self) -> None:
        class Environment(StreamExecutionEnvironment):
            def set_buffer_timeout(self, timeout: int) -> str:
                return "mine"

        assert Environment().set_buffer_timeout(1) == "mine"
        assert not hasattr(StreamExecutionEnvironment, "set_buffer_timeout")

    def test_classes_with_absent_methods_can_be_copied_and_pickled(self) -> None:
        configuration = Configuration.from_dict({"a": "b"})
        assert copy.deepcopy(configuration) == configuration
        assert pickle.loads(pickle.dumps(configuration)) == configuration
        descriptor = ValueStateDescriptor("count", int)
        assert pickle.loads(pickle.dumps(copy.copy(descriptor))).get_name() == "count"
