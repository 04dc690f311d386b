"""PyFlink names that Penstock lacks: the error names the alternative, and everything else behaves normally."""

import copy
import importlib
import pickle
import sys

import pytest

import penstock.common
import penstock.common.watermark_strategy
import penstock.datastream
import penstock.datastream.connectors
import penstock.datastream.functions
from penstock.absent import AbsentAttribute, AbsentImport, AbsentName
from penstock.common import Configuration, RowKind
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import KafkaSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError


class TestNames:
    def test_importing_an_absent_name_from_a_package_names_the_alternative(self) -> None:
        with pytest.raises(AbsentImport, match=r"penstock\.common\.InputFormat: Not available: .* Java objects"):
            from penstock.common import InputFormat  # noqa: F401

    def test_importing_an_absent_name_from_a_plain_module_names_the_alternative(self) -> None:
        with pytest.raises(
            AbsentImport, match=r"watermark_strategy\.AssignerWithPeriodicWatermarksWrapper: Not available: .* Java"
        ):
            from penstock.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper  # noqa: F401

    def test_reading_an_absent_name_as_an_attribute_names_the_alternative(self) -> None:
        for module in (penstock.common, penstock.common.watermark_strategy):
            with pytest.raises(AbsentAttribute, match="Not available: Penstock objects do not wrap Java objects"):
                _ = module.InputFormat
            assert not hasattr(module, "InputFormat")
            assert getattr(module, "InputFormat", 7) == 7

    def test_an_absent_name_raises_both_a_penstock_error_and_an_import_error(self) -> None:
        assert issubclass(AbsentName, PenstockError)
        with pytest.raises(ImportError):
            from penstock.common import InputFormat  # noqa: F401

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
            ("env.from_collection([1]).iterate()", "in state"),
        ],
    )
    def test_a_member_of_an_earlier_pyflink_names_its_replacement(self, call: str, says: str) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(AbsentAttribute, match=says):
            eval(call, {"env": env})


class TestModules:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("penstock.table", "Penstock has no Table API"),
            ("penstock.table.udf", "Penstock has no Table API"),
            ("penstock.datastream.connectors.jdbc", "PostgresSink"),
            ("penstock.datastream.connectors.pulsar", r"env\.from_spark\(env\.spark\.readStream\.format\('pulsar'\)"),
            ("penstock.java_gateway", "Penstock objects do not wrap Java objects"),
        ],
    )
    def test_importing_an_absent_module_names_the_alternative(self, name: str, says: str) -> None:
        with pytest.raises(AbsentImport, match=says):
            importlib.import_module(name)
        assert name not in sys.modules

    def test_importing_an_absent_module_from_its_package_names_the_alternative(self) -> None:
        with pytest.raises(AbsentImport, match="PostgresSink"):
            from penstock.datastream.connectors import jdbc  # noqa: F401

    def test_reading_an_absent_module_as_an_attribute_names_the_alternative(self) -> None:
        with pytest.raises(AbsentAttribute, match="PostgresSink"):
            _ = penstock.datastream.connectors.jdbc

    def test_a_module_unknown_to_pyflink_raises_an_ordinary_error(self) -> None:
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'penstock\.nonsense'") as raised:
            importlib.import_module("penstock.nonsense")
        assert not isinstance(raised.value, PenstockError)


class TestMembers:
    def test_an_absent_method_of_an_object_names_the_alternative(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(AbsentAttribute, match=r"StreamExecutionEnvironment\.create_input: .* Java objects"):
            env.create_input(1)  # type: ignore[attr-defined]
        assert not hasattr(env, "create_input")

    def test_an_absent_method_is_reported_under_the_name_of_the_subclass(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        keyed = env.from_collection([1]).key_by(lambda value: value)
        with pytest.raises(AbsentAttribute, match=r"KeyedStream\.iterate: Removed in Flink 2"):
            keyed.iterate()  # type: ignore[attr-defined]

    def test_an_absent_method_of_a_class_names_the_alternative(self) -> None:
        with pytest.raises(AbsentAttribute, match=r"KafkaSink\.get_java_function"):
            KafkaSink.get_java_function()  # type: ignore[attr-defined]

    def test_an_enum_with_absent_methods_keeps_its_members(self) -> None:
        assert len(RowKind) == 4
        assert not hasattr(RowKind.INSERT, "to_j_row_kind")

    def test_a_subclass_can_define_an_absent_method(self) -> None:
        class Environment(StreamExecutionEnvironment):
            def create_input(self, input_format: int) -> str:
                return "mine"

        assert Environment().create_input(1) == "mine"
        assert not hasattr(StreamExecutionEnvironment, "create_input")

    def test_classes_with_absent_methods_can_be_copied_and_pickled(self) -> None:
        configuration = Configuration.from_dict({"a": "b"})
        assert copy.deepcopy(configuration) == configuration
        assert pickle.loads(pickle.dumps(configuration)) == configuration
        descriptor = ValueStateDescriptor("count", int)
        assert pickle.loads(pickle.dumps(copy.copy(descriptor))).get_name() == "count"
