"""Programs that execute one job, two, none, asynchronously or not at all, as jobs of a service."""

from pathlib import Path

import pytest
from service import PER_EPOCH, Service, output_of, wait_for

from penstock.driver.assignment import Verdict

BEGIN = """
import sys, threading, time
from penstock.common import Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)

def write(n):
    sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
    env.from_sequence(1, n).uid("numbers").map(str).uid("text").sink_to(sink).uid("out")
"""

WITHOUT_SPARK = {
    "never executes": (BEGIN, "FAILED", "never called env.execute()"),
    "fails before it executes": (
        BEGIN + "def setup():\n    raise ValueError('no such table')\nsetup()",
        "FAILED",
        ", in setup\n    raise ValueError('no such table')\nValueError: no such table",
    ),
    "fails with text that UTF-8 does not have": (
        "raise ValueError('cannot read ' + b'a\\xff.csv'.decode(errors='surrogateescape'))",
        "FAILED",
        "ValueError: cannot read a\\udcff.csv",
    ),
    "exits with a code": ("import sys\nsys.exit(3)", "FAILED", "The program exited with code 3."),
    "asks for input": ("input('name? ')", "FAILED", "EOFError"),
}

WITH_SPARK = {
    "executes twice": (
        BEGIN + "assert sys.stdin.read() == ''\nwrite(9)\nenv.execute('first')\nwrite(5)\nenv.execute('second')",
        "FINISHED",
        "",
    ),
    "does not wait": (BEGIN + "write(9)\nenv.execute_async('async')", "FINISHED", ""),
    "exits without waiting, and leaves a thread": (
        BEGIN
        + "write(9)\nenv.execute_async('async')\nthreading.Thread(target=time.sleep, args=[600]).start()\nsys.exit(0)",
        "FINISHED",
        "",
    ),
    "collects": (
        BEGIN + "with env.from_sequence(1, 9).execute_and_collect() as results:\n"
        "    import pathlib\n    folder = pathlib.Path(sys.argv[1])\n    folder.mkdir()\n"
        "    (folder / 'results').write_text('\\n'.join(map(str, results)))",
        "FINISHED",
        "",
    ),
    "fails while its job runs": (
        BEGIN + f"write({1000 * PER_EPOCH})\nenv.execute_async('async')\nsys.exit(3)",
        "FAILED",
        "The program exited with code 3.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITHOUT_SPARK)
def test_a_program_without_a_job_fails_with_the_reason(service: Service, kind: str, tmp_path: Path) -> None:
    program, state, reason = WITHOUT_SPARK[kind]
    job = service.submit(program, str(tmp_path / "out"))
    shown = service.wait_until(job, state)
    assert reason in shown.reason
    service.wait_for_exit(service.claim(job))


@pytest.mark.slow
@pytest.mark.parametrize("before", ["time.sleep(600)", "while True: pass"])
def test_a_program_that_has_not_executed_its_job_can_be_cancelled(service: Service, before: str) -> None:
    job = service.submit(f"import time\n{before}")
    claim = service.claim(job)
    service.wait_until(job, "INITIALIZING")
    service.cancel(job)
    service.wait_until(job, "CANCELED")
    service.wait_for_exit(claim)
    [attempt] = service.view(job).attempts
    assert attempt.ended is not None
    assert attempt.ended.by == attempt.claim.token if attempt.claim else False


@pytest.fixture(scope="module")
def jobs(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """By kind: the job, and the folder of its output."""
    submitted = {}
    for kind, (program, _, _) in WITH_SPARK.items():
        out = tmp_path_factory.mktemp("kinds") / "out"
        submitted[kind] = service.submit(program, str(out)), out
    return submitted


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_SPARK)
def test_a_program_is_one_job(service: Service, jobs: dict[str, tuple[str, Path]], kind: str) -> None:
    job, out = jobs[kind]
    _, state, reason = WITH_SPARK[kind]
    shown = service.wait_until(job, state)
    assert reason in shown.reason
    service.wait_for_exit(service.claim(job))
    [attempt] = service.view(job).attempts
    assert attempt.ended is not None
    assert attempt.ended.verdict is Verdict[state]
    if state == "FINISHED":
        assert sorted(map(int, output_of(out).elements())) == list(range(1, 10))
    if kind == "executes twice":
        # The first job had finished; the log has the error of the second.
        assert "SecondJob" in service.log(job)


@pytest.mark.spark
@pytest.mark.slow
def test_jobs_with_the_same_name_are_independent(service: Service, jobs: dict[str, tuple[str, Path]]) -> None:
    """They were submitted at the same time, and each has its own output and checkpoints."""
    kinds = ("does not wait", "exits without waiting, and leaves a thread")
    shown = [service.wait_until(jobs[kind][0], "FINISHED") for kind in kinds]
    assert {each.name for each in shown} == {"async"}
    for kind in kinds:
        assert sorted(map(int, output_of(jobs[kind][1]).elements())) == list(range(1, 10))
    lineages = {service.view(jobs[kind][0]).lineage for kind in kinds}
    assert len(lineages) == 2
    assert "" not in lineages


FAILS = (
    BEGIN
    + """
mode = sys.argv[2]

def text(n):
    if n > 25 and mode == "fail":
        raise ValueError(n)
    return str(n)

policy = RollingPolicy.on_checkpoint_rolling_policy()
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).with_rolling_policy(policy).build()
env.from_sequence(1, 45).uid("numbers").map(text).uid("text").sink_to(sink).uid("out")
env.execute("fails")
"""
)


@pytest.mark.spark
@pytest.mark.slow
def test_a_program_that_is_submitted_again_after_it_failed_starts_from_scratch(
    service: Service, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    failed = service.submit(FAILS, str(tmp_path / "failed"), "fail", restart_strategy__type="none")
    assert "ValueError: 26" in service.wait_until(failed, "FAILED").reason
    assert output_of(tmp_path / "failed")
    again = service.submit(FAILS, str(out), "", restart_strategy__type="none")
    service.wait_until(again, "FINISHED")
    assert sorted(map(int, output_of(out).elements())) == list(range(1, 46))
    assert service.view(failed).lineage != service.view(again).lineage
    wait_for(lambda: service.shown(failed).state == "FAILED", "the failed job is shown")
