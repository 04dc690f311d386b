"""`penstock info` says what a program's job promises, and runs nothing of it."""

import json

import pytest

PROGRAM = """
    import sys
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors import DiscardingSink

    def never(value):
        raise AssertionError("the program was run")

    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_sequence(1, 3).uid("numbers").map(never)
    numbers.sink_to(DiscardingSink()).uid("out")
    numbers.add_sink(never).uid("call")
    env.execute(sys.argv[1])
    raise AssertionError("the program went on")
"""


@pytest.fixture
def call(invoke):
    def call(*arguments, program=PROGRAM):
        return invoke(program, "info", *arguments[:-1], arguments=list(arguments[-1:]))

    return call


def test_in_words_by_default(call, tmp_path):
    settings = ("-D", "execution.checkpointing.interval=1 s", "-D", f"state.checkpoints.dir={tmp_path}/checkpoints")
    result = call(*settings, "my job")
    assert result.exit_code == 0, result.output
    called = "its function is called at once, and again for the records of an epoch that is run again"
    assert result.output.splitlines() == [
        f"Job 'my job' is at-least-once, because of sink 'never' (uid 'call'): {called}.",
        "  checkpoints: exactly-once: checkpoints outlive the driver, and the next one goes on from the last",
        "  flow control: epochs of about 1000 ms: follows the checkpoint interval, at least 1000 ms",
        "  source 'Sequence' (uid 'numbers'): replayable: it generates records from integers, and the checkpoint "
        "stores the next one of every split",
        "  sink 'DiscardingSink' (uid 'out'): exactly-once: it discards all records",
        f"  sink 'never' (uid 'call'): at-least-once: {called}",
    ]
    assert not (tmp_path / "checkpoints").exists()


def test_as_json(call):
    told = json.loads(call("--json", "my job").output)
    assert (told["job"], told["guarantee"], told["weakest"]) == ("my job", "at-least-once", ["call", "checkpoints"])
    assert told["flow"]["target_ms"] is None
    assert [(source["uid"], source["replayable"]) for source in told["sources"]] == [("numbers", True)]
    assert [(sink["uid"], sink["guarantee"]) for sink in told["sinks"]] == [
        ("out", "exactly-once"),
        ("call", "at-least-once"),
    ]


def test_a_program_without_a_job_is_told_so(call):
    result = call("my job", program="print('hello')")
    assert result.exit_code == 1
    assert "never called env.execute()" in result.output
