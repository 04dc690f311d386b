"""`penstock run --dry-run -s PATH job.py` says what the program would be given, and starts nothing."""

import json
import os
import textwrap
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.testing import JobHarness

PROGRAM = """
    from dataclasses import dataclass
    from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, StreamExecutionEnvironment
    from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

    @dataclass
    class Order:
        id: int
        price: {price}

    class Totals(KeyedProcessFunction, CheckpointedFunction):
        def initialize_state(self, context):
            self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", {seen}))

        def snapshot_state(self, context):
            raise AssertionError("the job was run")

        def open(self, runtime_context):
            {opening}
            self.order = runtime_context.get_state(ValueStateDescriptor("order", Order))
            self.added = runtime_context.get_state(ValueStateDescriptor("added", str))

        def process_element(self, value, ctx):
            raise AssertionError("the job was run")

    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([]).uid("numbers").key_by(lambda pair: pair[0])
    numbers.process(Totals()).name("totals").uid("{uid}").print().uid("out")
    env.execute("the job")
"""


@dataclass
class Order:
    id: int
    price: int


class Totals(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, context):
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", int))

    def snapshot_state(self, context):
        pass

    def open(self, runtime_context):
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Order))
        self.old = runtime_context.get_state(ValueStateDescriptor("old", int))

    def process_element(self, value, ctx):
        self.order.update(Order(1, value[1]))
        self.old.update(1)
        self.seen.add(value[1])


@pytest.fixture
def path(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([]).uid("numbers").key_by(lambda pair: pair[0])
    job = JobHarness(keyed.process(Totals()).name("totals").uid("totals"))
    job.push(("a", 1), ("b", 2)).epoch()
    return job.stop_with_savepoint(tmp_path / "savepoints")


@pytest.fixture
def dry_run(path, invoke):
    def dry_run(*options, price="float", seen="int", opening="pass", uid="totals"):
        program = textwrap.dedent(PROGRAM).format(price=price, seen=seen, opening=opening, uid=uid)
        return invoke(program, "run", "--dry-run", "-s", path, *options)

    return dry_run


def everything_in(directory):
    return {os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names}


def test_what_fits_is_restored_and_the_exit_code_is_0(dry_run, path, tmp_path):
    before = everything_in(tmp_path)
    result = dry_run("-p", "3")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"Job 'the job' from the savepoint in {path}, of job 'harness'",
        "operator 'totals' (totals): restored",
        "  restored      order: value dataclass test_dry_run.Order(id: long, price: long)"
        " -> value dataclass __main__.Order(id: long, price: double)",
        "  starts empty  added: value string",
        "  not declared  old: value long",
        "  restored      seen: list long",
        "source 'numbers' (Collection): restored, goes on after 2 records",
        "It would start.",
    ]
    assert everything_in(tmp_path) - before == {str(tmp_path / "job.py")}


def test_what_does_not_fit_is_said_with_the_reason_and_the_exit_code_is_1(dry_run):
    result = dry_run(price="str")
    assert result.exit_code == 1
    assert "operator 'totals' (totals): incompatible" in result.output
    assert "In field 'price' of Order: it was 'long' and is declared as 'string' now" in result.output
    assert "It would not start." in result.output


def test_operator_state_that_does_not_fit(dry_run):
    result = dry_run(seen="str")
    assert result.exit_code == 1
    assert "  incompatible  seen: list long -> list string" in result.output


def test_an_operator_that_is_gone_is_dropped_if_the_user_says_so(dry_run):
    refused = dry_run(uid="other")
    assert refused.exit_code == 1
    assert "operator 'totals' (totals): dropped" in refused.output
    assert "operator 'other' (totals): starts empty" in refused.output
    assert "holds state that this program has no operator for" in refused.output
    allowed = dry_run("-n", uid="other")
    assert allowed.exit_code == 0, allowed.output
    assert "  dropped       order" in allowed.output


def test_a_function_that_cannot_be_opened_is_named(dry_run):
    result = dry_run(opening="raise OSError('no model')")
    assert result.exit_code == 1
    assert "Operator 'totals' (uid 'totals') could not be opened: no model" in result.output


def test_as_json(dry_run, path):
    said = json.loads(dry_run("--json", price="str").output)
    assert (said["program"], said["savepoint"], said["would_start"]) == ("the job", path, False)
    (operator,) = said["operators"]
    assert {state["name"]: state["verdict"] for state in operator["states"]} == {
        "order": "incompatible",
        "added": "starts empty",
        "old": "not declared",
        "seen": "restored",
    }
    assert said["sources"][0]["records"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--dry-run"], "with a savepoint"), (["--json", "-s", "somewhere"], "It is for --dry-run")],
)
def test_options_that_mean_nothing_are_refused(tmp_path, options, said):
    program = tmp_path / "job.py"
    program.write_text("")
    result = CliRunner().invoke(app, ["run", *options, str(program)])
    assert result.exit_code == 2
    assert said in result.output


def test_a_path_without_a_savepoint_is_an_error_as_in_a_run(dry_run, tmp_path):
    result = dry_run("-s", str(tmp_path))
    assert result.exit_code == 1
    assert "No savepoint found in" in result.output
