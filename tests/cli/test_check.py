"""`penstock check` lists what a program uses that is absent, refused or different here."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.absent import ALTERNATIVES
from penstock.cli import api_names
from penstock.cli.api_names import Status
from penstock.cli.main import app
from penstock.cli.program_check import Finding, check_program

SAME = """
    from pyflink.common import Types
    from pyflink.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_sequence(1, 10).map(str, output_type=Types.STRING()).key_by(str).add_sink(None)
    env.execute("numbers")
"""


def found(program: str) -> list[Finding]:
    return check_program(textwrap.dedent(program))


def named(program: str) -> dict[str, Status]:
    """The findings by name, without those on the environment itself."""
    return {each.name: each.status for each in found(program) if not each.name.endswith("get_execution_environment")}


class TestImports:
    @pytest.mark.parametrize("root", ["pyflink", "penstock"])
    def test_an_absent_name_is_found_with_its_alternative(self, root: str) -> None:
        (finding,) = found(f"\nfrom {root}.datastream.connectors.jdbc import JdbcSink as Sink\nSink.sink()\n")
        assert finding.name == f"{root}.datastream.connectors.jdbc.JdbcSink"
        assert finding.status is Status.ABSENT
        assert finding.text == ALTERNATIVES["datastream.connectors.jdbc"]
        assert finding.lines == [2]

    def test_a_name_of_an_absent_package_is_found(self) -> None:
        (finding,) = found("from pyflink.table.expressions import col\n")
        assert finding.text == ALTERNATIVES["table"]

    def test_an_absent_module_is_found(self) -> None:
        assert named("import pyflink.table as t\nt.EnvironmentSettings") == {"pyflink.table": Status.ABSENT}

    def test_a_name_that_neither_library_has_is_found(self) -> None:
        assert named("from pyflink.common import Warp") == {"pyflink.common.Warp": Status.ABSENT}

    def test_a_name_that_a_module_of_pyflink_only_imports_is_found_elsewhere(self) -> None:
        (finding,) = found("from pyflink.datastream.data_stream import ListStateDescriptor")
        assert finding.text == "Import it from penstock.datastream.state."

    def test_other_modules_are_of_no_interest(self) -> None:
        assert found("import json\nfrom .table import x\nfrom apache_flink.table import y\njson.absent") == []

    def test_names_are_followed_through_modules_and_stars(self) -> None:
        assert named("""
            import pyflink.datastream
            from pyflink.common import *
            pyflink.datastream.DataStream.warp
            InputFormat
            Types.WARP()
        """) == {
            "DataStream.warp": Status.ABSENT,
            "InputFormat": Status.ABSENT,
            "Types.WARP": Status.ABSENT,
        }


class TestMembers:
    """The class of a variable is inferred, to distinguish common names such as `print`."""

    def test_calls_are_followed_from_the_environment(self) -> None:
        assert named("""
            from pyflink.datastream import StreamExecutionEnvironment
            env = StreamExecutionEnvironment.get_execution_environment()
            ds = env.from_sequence(1, 2).map(lambda n: n).name("x").filter(bool)
            ds.key_by(str).print()
            ds.warp()
        """) == {
            "DataStream.key_by": Status.DIFFERS,
            "KeyedStream.print": Status.NOTED,
            "DataStream.warp": Status.ABSENT,
        }

    def test_objects_of_other_libraries_are_left_alone(self) -> None:
        assert found("import pandas\nframe = pandas.DataFrame()\nframe.print()\nframe.cache()") == []

    def test_functions_know_names_of_the_module_and_annotations(self) -> None:
        assert named("""
            from pyflink.datastream import DataStream, StreamExecutionEnvironment
            def build(env: StreamExecutionEnvironment) -> DataStream:
                return env.from_sequence(1, 2).warp1()
            def main(ds: "DataStream | None" = None):
                build(env).warp2()
                ds.warp3()
            env = StreamExecutionEnvironment.get_execution_environment()
        """) == {
            "DataStream.warp1": Status.ABSENT,
            "DataStream.warp2": Status.ABSENT,
            "DataStream.warp3": Status.ABSENT,
        }

    def test_methods_of_functions_know_the_types_of_their_parameters(self) -> None:
        assert named("""
            from pyflink.datastream import KeyedProcessFunction
            from pyflink.datastream.state import ValueStateDescriptor
            class Count(KeyedProcessFunction):
                def open(self, context):
                    self.total = context.get_state(ValueStateDescriptor("total"))
                    context.get_attempt_number()
                    context.warp()
                def process_element(self, value, ctx):
                    ctx.timer_service().warp()
                    ctx.get_current_key()
        """) == {
            "RuntimeContext.get_attempt_number": Status.DIFFERS,
            "RuntimeContext.warp": Status.ABSENT,
            "TimerService.warp": Status.ABSENT,
        }

    def test_a_distinctive_name_is_found_on_an_unknown_object(self) -> None:
        assert named("def f(x):\n    x.get_java_function()\n    x.iterate()") == {"….get_java_function": Status.ABSENT}

    def test_java_objects_are_absent(self) -> None:
        (finding,) = found("def f(env):\n    env._j_stream_execution_environment.addJar()")
        assert finding.text == ALTERNATIVES["java_gateway"]

    def test_fields_of_rows_and_attributes_of_instances_are_not_absent(self) -> None:
        assert (
            found("""
            from pyflink.common import Row, Types
            from pyflink.datastream import OutputTag
            print(Row(name="a").name, OutputTag("late", Types.STRING()).tag_id)
        """)
            == []
        )

    def test_an_accepted_call_is_reported_as_such(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(api_names.WITHOUT_EFFECT, "DataStream.name", "It is.")
        assert named("""
            from pyflink.datastream import StreamExecutionEnvironment
            StreamExecutionEnvironment.get_execution_environment().from_sequence(1, 2).name("x")
        """) == {"DataStream.name": Status.ACCEPTED}

    def test_all_lines_of_a_name_are_listed(self) -> None:
        (finding,) = [
            each
            for each in found("""
            from pyflink.datastream import DataStream
            def f(ds: DataStream):
                (ds
                    .print())
                ds.print()
        """)
            if each.name == "DataStream.print"
        ]
        assert finding.lines == [5, 6]


class TestKafkaProperties:
    def test_properties_without_effect_and_impossible_ones_are_found(self) -> None:
        findings = {
            each.name: each
            for each in found("""
            from pyflink.datastream.connectors.kafka import FlinkKafkaConsumer, KafkaSource
            source = (
                KafkaSource.builder()
                .set_property("max.poll.records", limit)
                .set_property("security.protocol", "SASL_SSL")
                .set_property("buffer.memory", size)
                .set_property("sasl.jaas.config", "a.B required username=\\"u\\" password=\\"p\\";")
                .set_properties({"ssl.truststore.location": "/etc/kafka.jks", "metric.reporters": "a.B"})
            )
            FlinkKafkaConsumer("in", schema(), {"key.serializer": "a.B", "bootstrap.servers": "b:9092"})
            FlinkKafkaConsumer("in", schema(), properties={"partitioner.class": "a.B"})
        """)
            if "." in each.name and each.name.islower()
        }
        assert {name: (each.status, each.lines) for name, each in findings.items()} == {
            "max.poll.records": (Status.ACCEPTED, [5]),
            "ssl.truststore.location": (Status.REFUSED, [9]),
            "metric.reporters": (Status.ACCEPTED, [9]),
            "key.serializer": (Status.ACCEPTED, [11]),
            "partitioner.class": (Status.ACCEPTED, [12]),
        }
        assert (
            findings["max.poll.records"].text
            == "Not needed: penstock.epoch.max-records limits the records of an epoch."
        )
        assert "Export it with keytool and openssl" in findings["ssl.truststore.location"].text

    def test_a_trust_store_of_pem_files_is_no_finding(self) -> None:
        assert named("""
            from pyflink.datastream.connectors.kafka import KafkaSink
            builder = KafkaSink.builder()
            builder.set_property("ssl.truststore.location", "/etc/ca.pem")
            builder.set_property("ssl.truststore.type", "PEM")
        """) == {
            "pyflink.datastream.connectors.kafka.KafkaSink": Status.DIFFERS,
            "KafkaSinkBuilder.set_property": Status.NOTED,
        }


class TestSettings:
    def test_each_outcome_is_distinguished(self) -> None:
        assert named("""
            from pyflink.common import Configuration
            config = Configuration()
            config.set_string("python.execution-mode", "thread")
            config.set_string("python.pythonpath", files())
            config.set_integer("parallelism.defualt", 2)
            config.set_string("execution.checkpointing.mode", "SOMETIMES")
            config.set_integer("parallelism.default", 2)
            config.set_string("spark.executor.memory", "1g")
            Configuration.from_dict({"taskmanager.numberOfTaskSlots": 4, **more})
            TIMEOUT = "pekko.ask.timeout"
        """) == {
            "python.execution-mode": Status.ACCEPTED,
            "python.pythonpath": Status.REFUSED,
            "parallelism.defualt": Status.ABSENT,
            "execution.checkpointing.mode": Status.REFUSED,
            "taskmanager.numberOfTaskSlots": Status.ACCEPTED,
            "pekko.ask.timeout": Status.ACCEPTED,
        }

    def test_a_harmless_value_of_a_refused_setting_is_accepted(self) -> None:
        program = "c.set_string('pipeline.time-characteristic', {})"
        assert found(program.format("'EventTime'")) == []
        assert [each.status for each in found(program.format("'IngestionTime'"))] == [Status.REFUSED]
        assert [each.status for each in found(program.format("chosen"))] == [Status.REFUSED]

    def test_a_near_miss_is_suggested(self) -> None:
        (finding,) = found("c.set_integer('parallelism.defualt', 2)")
        assert finding.text == "Unknown setting. Did you mean 'parallelism.default'?"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(SAME))
    return path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


class TestTheCommand:
    def test_succeeds_if_nothing_is_absent(self, program: Path) -> None:
        result = call(program)
        assert result.exit_code == 0, result.output
        assert "1 different." in result.output
        assert rf"sed -i 's/\bpyflink\b/penstock/g' {program}" in result.output

    def test_fails_if_a_name_is_absent(self, program: Path) -> None:
        program.write_text("from penstock.table import TableEnvironment\n")
        result = call(program)
        assert result.exit_code == 1
        assert f"{program}:1: absent: penstock.table.TableEnvironment\n    {ALTERNATIVES['table']}" in result.output
        assert "sed" not in result.output

    def test_fails_if_a_setting_is_refused(self, program: Path) -> None:
        program.write_text("config.set_string('python.pythonpath', 'x')\n")
        assert call(program).exit_code == 1

    def test_says_so_if_nothing_differs(self, program: Path) -> None:
        program.write_text("print(1)\n")
        assert call(program).output == "No differences found.\n"

    def test_prints_json(self, program: Path) -> None:
        program.write_text("\nfrom penstock.table import TableEnvironment\n")
        result = call(program, "--json")
        assert result.exit_code == 1
        printed = json.loads(result.stdout)
        assert printed["counts"] == {"absent": 1, "refused": 0, "differs": 0, "noted": 0, "accepted": 0}
        assert printed["findings"] == [
            {
                "file": str(program),
                "lines": [2],
                "name": "penstock.table.TableEnvironment",
                "status": "absent",
                "text": ALTERNATIVES["table"],
            }
        ]

    def test_checks_all_files_of_a_folder(self, program: Path) -> None:
        (program.parent / "more").mkdir()
        (program.parent / "more" / "tables.py").write_text("import pyflink.table\n")
        assert "tables.py:1: absent: pyflink.table" in call(program.parent).output

    def test_names_the_line_of_a_syntax_error(self, program: Path) -> None:
        program.write_text("print 1\n")
        result = call(program)
        assert result.exit_code == 2
        assert "line 1 is not Python" in " ".join(result.output.replace("│", " ").split())

    def test_starts_no_java_and_imports_no_pyspark(self, program: Path) -> None:
        check = (
            "import sys\nfrom penstock.cli.program_check import check_program\n"
            f"check_program(open({str(program)!r}).read())\nassert 'pyspark' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", check], check=True)
