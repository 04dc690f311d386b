"""`penstock run` runs a program as python would, and prints errors without Penstock's stack frames."""

import json
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from job_lines import without_job_lines

import penstock

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
OURS = str(Path(penstock.__file__).parent)


def penstock_run(program, *arguments, options=(), **more):
    return subprocess.run(
        [*PENSTOCK, "run", *options, str(program), *arguments], capture_output=True, text=True, timeout=120, **more
    )


@pytest.fixture
def write(tmp_path):
    def write(text, name="job.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


PRINTS_SETTINGS = (
    "import json\nfrom penstock.datastream.launch import launch_context\nprint(json.dumps(launch_context().settings))\n"
)


def test_a_program_runs_as_main_with_its_arguments_and_sibling_modules(write):
    write("NAME = 'neighbour'", "sibling.py")
    program = write("import sys, sibling; print(__name__, __file__, sibling.NAME, sys.argv[1:])")
    done = penstock_run(program, "-p", "7", "--help", "x y")
    assert done.stdout == f"__main__ {program} neighbour ['-p', '7', '--help', 'x y']\n"
    assert done.returncode == 0


def test_command_line_settings_reach_the_program(write):
    program = write(PRINTS_SETTINGS)
    options = ["-p", "3", "-D", "state.backend=memory", "-D", "spark.app.name=a=b"]
    done = penstock_run(program, options=options)
    assert json.loads(done.stdout) == {
        "parallelism.default": "3",
        "state.backend": "memory",
        "spark.app.name": "a=b",
    }


def test_command_line_settings_are_in_the_environments_configuration(write):
    program = write(
        "from penstock.datastream import StreamExecutionEnvironment as E\n"
        "env = E.get_execution_environment()\n"
        "print(env.get_parallelism(), env.get_configuration().get_string('pipeline.name', ''))\n"
    )
    assert penstock_run(program, options=["-p", "5", "-D", "pipeline.name=mine"]).stdout == "5 mine\n"


@pytest.mark.parametrize(
    "options",
    [
        ["-s", "/saved", "-n"],
        ["--fromSavepoint", "/saved", "--allowNonRestoredState"],
        ["-s", "/saved", "-n", "-yid", "application_1_2"],
    ],
)
def test_savepoint_options_accept_flinks_spelling(write, options):
    done = penstock_run(write(PRINTS_SETTINGS), options=options)
    assert json.loads(done.stdout) == {
        "execution.state-recovery.path": "/saved",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    assert done.stderr.startswith("Note: -yid has no effect.") == ("-yid" in options)


def test_quiet_sets_a_configuration_key(write):
    done = penstock_run(write(PRINTS_SETTINGS), options=["--quiet"])
    assert json.loads(done.stdout) == {"penstock.console.quiet": "true"}


class TestAProgramThatNeverCallsExecute:
    DECLARES = (
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
    )

    def test_a_program_without_execute_causes_a_warning_with_its_line(self, write):
        program = write(self.DECLARES)
        done = penstock_run(program)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == (
            f"The program declared a stream at {program}:3 but did not run it, because it never called env.execute().\n"
        )

    def test_a_failed_program_causes_no_warning_about_execute(self, write):
        done = penstock_run(write(self.DECLARES + "raise SystemError('mine')\n"))
        assert done.returncode == 1
        assert "env.execute()" not in done.stderr

    def test_a_program_without_streams_causes_no_warning_about_execute(self, write):
        done = penstock_run(write(self.DECLARES.replace("env.from_collection([1]).print()\n", "")))
        assert (done.returncode, done.stderr) == (0, "")


class TestAJobThatWasCancelled:
    RAISES = "from penstock.common.job import JobCancelled\nraise JobCancelled(\"Job 'x' was cancelled.\")\n"

    def test_a_cancelled_job_is_not_a_failure(self, write):
        done = penstock_run(write(self.RAISES))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_the_message_of_an_incomplete_cancellation_is_printed(self, write):
        text = "Job 'x' was cancelled here, but its checkpoints remain."
        done = penstock_run(write(self.RAISES.replace("Job 'x' was cancelled.", text)))
        assert (done.returncode, done.stderr) == (0, f"{text}\n")

    @pytest.mark.parametrize("options", [[], ["--quiet"]])
    def test_a_cancellation_is_printed_if_the_log_line_is_not(self, write, options):
        own = "import logging; logging.basicConfig()\nfrom penstock.common.console import console; console()\n"
        own = "" if options else own
        done = penstock_run(write(own + self.RAISES), options=options)
        assert (done.returncode, done.stderr) == (0, "Job 'x' was cancelled.\n")


@pytest.mark.parametrize("options", [["-D", "novalue"], ["-D", "=x"], ["-p", "0"], ["-p", "many"]])
def test_an_invalid_option_is_refused_before_the_program_runs(write, options):
    done = penstock_run(write("print('ran')"), options=options)
    assert done.returncode == 2
    assert "ran" not in done.stdout
    assert options[0] in done.stderr


def test_the_error_for_a_missing_program_names_it(tmp_path):
    done = penstock_run("nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere.py" in done.stderr


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no')", 1)])
def test_the_exit_code_of_the_program_is_returned(write, end, code):
    assert penstock_run(write(f"import sys; {end}")).returncode == code


def test_a_penstock_error_is_printed_with_the_users_line(write):
    program = write(
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.set_parallelism(0)\n"
    )
    done = penstock_run(program)
    assert done.returncode == 1
    assert done.stderr == (
        f"{program}:3: GraphError: The parallelism must be an int of at least 1, not 0.\n"
        "    env.set_parallelism(0)\n"
        "Fix: Pass such a number, or remove the call.\n"
    )


def test_a_program_error_is_printed_with_the_users_traceback(write):
    program = write("def half(n):\n    return n / 0\n\ntry:\n    half(1)\nexcept ValueError:\n    pass\n")
    done = penstock_run(program)
    assert done.returncode == 1
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{program}", line 5, in <module>\n')
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert OURS not in done.stderr


def test_penstock_frames_are_removed_from_causes_as_well(write):
    program = write(
        "from penstock.common import Row\n"
        "try:\n    Row(1, 2)['name']\n"
        "except KeyError as error:\n    raise RuntimeError('no such field') from error\n"
    )
    done = penstock_run(program)
    assert done.stderr.count("Traceback") == 2
    assert "no field names" in done.stderr
    assert OURS not in done.stderr


def test_a_syntax_error_points_at_the_line(write):
    program = write("x = 1\ny = = 2\n")
    done = penstock_run(program)
    assert done.returncode == 1
    assert f'File "{program}", line 2' in done.stderr
    assert OURS not in done.stderr


def test_ctrl_c_ends_a_program_quietly(write):
    program = write("import time; print('up', flush=True); time.sleep(60)")
    with subprocess.Popen(
        [*PENSTOCK, "run", str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        run.stdout.readline()
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
        assert run.stderr.read() == "Stopped.\n"


def test_version_names_penstock_spark_and_python():
    done = subprocess.run([*PENSTOCK, "version"], capture_output=True, text=True)
    assert done.stdout.startswith(f"Penstock {penstock.__version__}, Spark {version('pyspark')}, Python 3.")


@pytest.mark.spark
def test_a_function_error_is_printed_with_the_operator(write):
    """Workers also find modules next to the program."""
    write("def parse(text):\n    return int(text)\n", "sibling.py")
    program = write(
        "from sibling import parse\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection(['1', 'two']).map(lambda text: parse(text)).name('parse').uid('p').print()\n"
        "env.execute()\n"
    )
    done = penstock_run(program, options=["-p", "1"])
    assert done.returncode == 1
    assert "Operator 'parse' (uid 'p') failed" in done.stderr
    failed = "ValueError: invalid literal for int() with base 10: 'two'"
    printed = without_job_lines(done.stderr)
    assert printed.startswith(f"{program.with_name('sibling.py')}:2: {failed}\n    return int(text)\n")
    assert f"  see also {program}:4, in <lambda>\n" in done.stderr
    assert OURS not in done.stderr
    assert not re.search(r"py4j|java|scala", done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_ends_a_running_job_after_its_epoch(write):
    program = write(
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "rows = env.spark.readStream.format('rate').load()\n"
        "env.from_spark(rows).map(lambda row: row.value).print()\n"
        "env.execute()\n"
    )
    with subprocess.Popen(
        [*PENSTOCK, "run", "-p", "1", str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline().strip() == "0"
        run.send_signal(signal.SIGINT)
        assert run.wait(120) == 130
        said = run.stderr.read()
        assert "SIGINT: job 'penstock-job' stops after the current epoch. Press Ctrl-C again" in said
        assert "It has no checkpoint in a directory; the next start begins from scratch." in said
        assert without_job_lines(said).endswith("Stopped.\n")
