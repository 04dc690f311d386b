"""The JobManager: the process that runs one attempt of a cluster's job.

    python -m penstock.cluster.jobmanager <order>

It claims the attempt, opens a control point, and only then runs the program, so that a program that hangs, fails or
takes minutes before it executes a job can be seen and cancelled. While the job runs, it watches the records: a job that
is to be cancelled is cancelled even if no Dispatcher can reach this process, and an attempt that was declared lost
ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.cluster.attempt import RecordedAttempt
from penstock.cluster.directory import cluster_storage
from penstock.cluster.inspection import restore_keys
from penstock.cluster.log_files import log_to_stderr, rotate_in_background
from penstock.cluster.order import LOG, NOT_CLAIMED, ORDER, OUTPUT, PROGRAM, UPLOAD, Order, read_order, socket_name
from penstock.cluster.presence import Presence
from penstock.cluster.processes import kill_tree
from penstock.cluster.program import PreparedProgram, prepare, unpack
from penstock.cluster.records import Records, Submission
from penstock.common.console import SECRETS
from penstock.common.error_format import short_form
from penstock.common.job_client import JobClient
from penstock.common.json_text import to_json
from penstock.common.options.service import HA_TYPE, REST_STORE_DURATION
from penstock.common.wall_clock import now_ms
from penstock.control.server import ControlPoint
from penstock.datastream.dependencies import import_configured
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.program_runner import execute_program, raised_by_program, user_traceback
from penstock.driver.assignment import Superseded, Verdict, verdict_on
from penstock.driver.commands import Commands, DescribableJob
from penstock.driver.control_messages import (
    Answer,
    Cancel,
    Describe,
    DescribeEnvironment,
    Description,
    Done,
    DumpThreads,
    Follow,
    Request,
    Trigger,
)
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.process_facts import python_environment, thread_dump
from penstock.errors import PenstockError
from penstock.runtime.probe import crash_probe
from penstock.state.storage import StorageError

_WATCH_S = 2.0
"""How often the process looks for a request to cancel, and for its own end, in the records."""

_RESULTS_S = 5.0
"""How long the results of operations are waited for when the job has ended. A savepoint can take longer."""

_NO_JOB = "The program ended but executed no job: it never called env.execute()."
_NO_RESULT = "The job ended without a result."

_logger = logging.getLogger("penstock")


class NotStarted(PenstockError):
    """The program of the job has not executed it yet.

    Operator action: try again once the job runs, or cancel it.
    """


class JobManager:
    """One attempt, from its claim to its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._storage = cluster_storage(order.records, order.settings)
        self._records = Records(self._storage)
        self._attempt = RecordedAttempt(self._records, order.job_id, order.attempt, order.finalize)
        self._started_ms = now_ms()
        self._lock = threading.Lock()
        self._cancelled = False
        self._client: JobClient | None = None
        self._commands: Commands | None = None
        self._point: ControlPoint | None = None
        self._submission: Submission | None = None
        self._ended = threading.Event()

    def run(self) -> int:
        """Run the attempt and return the exit code of the process."""
        claimed = self._attempt.claim(self._order.control)
        # It holds settings, and is not needed again: whichever process runs the attempt has read it.
        (Path(self._order.folder) / ORDER).unlink(missing_ok=True)
        if not claimed:
            _logger.warning("Attempt %d of job %s is not ours.", self._order.attempt, self._order.job_id)
            return NOT_CLAIMED
        submission = self._submission = self._records.view(self._order.job_id).submission
        SECRETS.learn({**self._order.defaults, **submission.configuration}, submission.arguments)
        presence = self._announce()
        point = self._point = ControlPoint(
            self._order.control, socket_name(self._order.job_id, self._order.attempt), self._answer
        )
        threading.Thread(target=self._watch, name="penstock-records", daemon=True).start()
        try:
            self._run_program(submission)
        finally:
            self._ended.set()
            crash_probe("driver", lambda: 0)("concluded")
            self._store_history()
            point.close()
            if presence is not None:
                presence.close()
        if self._client is not None and not self._client.ended:
            # The program failed, so its job must not commit another epoch.
            self._exit()
        return 0

    def _announce(self) -> Presence | None:
        """Report this process as alive to ZooKeeper, if the cluster has one."""
        order = self._order
        if HA_TYPE.read(order.settings) == "none":
            return None
        from penstock.cluster.zookeeper_client import ZooKeeperSettings

        settings = ZooKeeperSettings.read(order.settings, self._storage)
        presence = Presence(settings, order.job_id, order.attempt, socket.gethostname())
        presence.start()
        return presence

    # -- the program ---------------------------------------------------------------------------------------------------

    def _run_program(self, submission: Submission) -> None:
        context = LaunchContext(
            defaults=self._order.defaults,
            final=restore_keys(submission.savepoint, submission.claim_mode, submission.allow_non_restored_state),
            assignment=self._attempt,
            attach=self._attach,
        )
        error: BaseException | None = None
        try:
            program = self._prepare(submission)
            context.settings = program.settings_with(submission.configuration)
            launch(context)
            import_configured(context.defaults, context.settings)
            execute_program(program.program, submission.arguments, program.module)
        except SystemExit as exiting:
            # A program that exits normally can still have an asynchronous job.
            error = None if exiting.code in (None, 0) else exiting
        except BaseException as raised:
            error = raised
        client = self._client
        if client is not None and error is None:
            # The end of the program does not end its job; a signal that asks this process to exit does.
            try:
                with client:
                    client.result()
            except BaseException as raised:
                error = raised
        self._conclude(error, context.submitted)

    def _prepare(self, submission: Submission) -> PreparedProgram:
        """Unpack the program into the directory of the attempt, which becomes the working directory."""
        upload, folder = Path(self._order.folder) / UPLOAD, Path(self._order.folder) / PROGRAM
        upload.write_bytes(self._records.read_program(submission.program))
        unpack(upload, folder, submission.file)
        upload.unlink()
        program = prepare(folder, submission.entry)
        os.chdir(program.program if program.program.is_dir() else program.program.parent)
        return program

    def _conclude(self, error: BaseException | None, submitted: bool) -> None:
        """Decide how the attempt ended, unless the job did."""
        if error is not None:
            _print(error)
        if self._attempt.decided is not None:
            return
        try:
            if self._cancelled and not self._attempt.finalize:
                self._end_cancelled()
            else:
                verdict = Verdict.FAILED if error is None else self._verdict_on(error)
                reason = (_NO_RESULT if submitted else _NO_JOB) if error is None else _reason(error)
                # The job is cancelled, and no error of its program changes that.
                self._attempt.decide(Verdict.LOST if self._attempt.finalize else verdict, reason)
        except Superseded as superseded:
            _logger.warning("%s", superseded)

    def _verdict_on(self, error: BaseException) -> Verdict:
        resumes = self._attempt.resumes
        if _lost_spark(error, resumes):
            return Verdict.LOST
        # A missing file or a server of the user that does not answer fails in the next attempt as well.
        return verdict_on(error, starting=resumes and not raised_by_program(error))

    def _attach(self, job: DescribableJob, client: JobClient) -> Callable[[], None]:
        """Route commands to the job from now on."""
        kept_s = REST_STORE_DURATION.read(self._order.settings) / 1000
        commands = Commands(job, client, kept_s, completed=self._notify)
        with self._lock:
            self._client, self._commands = client, commands
            cancelled = self._cancelled
        if cancelled:
            self._exit()
        return lambda: None

    def _notify(self) -> None:
        """Send the effect of an operation to the Dispatcher, which waits for it before it passes on the result."""
        if self._point is not None:
            self._point.notify()

    # -- commands ------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, Cancel) and not request.savepoint:
            self._records.request_cancel(self._order.job_id)
            self._cancel()
            return Done()
        if isinstance(request, Trigger) and request.request == Cancel():
            self._records.request_cancel(self._order.job_id)
        if isinstance(request, Follow):
            return self.snapshot()
        if self._commands is not None:
            return self._commands(request)
        match request:
            case Describe():
                return self._description()
            case DescribeEnvironment():
                return python_environment()
            case DumpThreads():
                return thread_dump()
        raise NotStarted(
            f"Job {self._order.job_id} is initializing: its program has not executed it yet.",
            fix="Try again once `penstock list` shows it as RUNNING.",
        )

    def _description(self) -> Description:
        return Description(
            id=self._order.job_id,
            name=self._name,
            status="INITIALIZING",
            pid=os.getpid(),
            started=self._started_ms,
            epochs=0,
            restarts=0,
            parallelism={},
        )

    def snapshot(self) -> JobSnapshot:
        """Return a snapshot of the job, with the number of this attempt."""
        bare = None if self._commands is None else self._commands.snapshot()
        if bare is None:
            since = {"INITIALIZING": self._started_ms}
            bare = JobSnapshot(id=self._order.job_id, name=self._name, state="INITIALIZING", state_since_ms=since)
        submitted = self._started_ms if self._submission is None else self._submission.submitted_ms
        return msgspec.structs.replace(bare, attempt=self._order.attempt, started_ms=submitted)

    @property
    def _name(self) -> str:
        return self._order.job_id if self._submission is None else self._submission.name

    # -- the records ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look for a request to cancel and for the end of this attempt, which others can record."""
        while not self._ended.wait(_WATCH_S):
            try:
                job = self._records.view(self._order.job_id)
            except (StorageError, PenstockError, OSError) as error:
                _logger.warning("Cannot read the records of the job: %s", error)
                continue
            ended = job.attempts[self._order.attempt - 1].ended
            if ended is not None and ended.by != self._attempt.token:
                _logger.error("This attempt was declared %s: %s", ended.verdict.value, ended.reason)
                self._exit()
            if job.cancel_requested:
                self._cancel()

    def _cancel(self) -> None:
        """Cancel the job, or end the process if the program has not executed it yet."""
        if self._attempt.finalize:
            return
        with self._lock:
            if self._cancelled:
                return
            self._cancelled, client = True, self._client
        if client is not None:
            try:
                client.cancel()
            except Exception as error:  # its JVM has died, which ends the job as well
                _logger.warning("Cannot cancel the job: %s", error)
            return
        try:
            self._end_cancelled()
        finally:
            self._exit()

    def _end_cancelled(self) -> None:
        """Decide the end of a cancelled job that does not run in this process.

        The last epoch of an earlier attempt might not be committed. Then another attempt does it.
        """
        if self._attempt.has_lineage:
            self._attempt.decide(Verdict.LOST, "The job was cancelled before this attempt resumed it.")
        else:
            self._attempt.decide(Verdict.CANCELED, "The job was cancelled before its program executed it.")

    def _exit(self) -> None:
        """End this process and its descendants at once. Nothing is committed or removed."""
        logging.shutdown()
        claim = self._attempt.claimed
        if claim is not None:
            kill_tree(claim, spare=os.getpid())
        os._exit(1)

    def _store_history(self) -> None:
        try:
            if self._attempt.decided is not None and self._attempt.decided.verdict is not Verdict.LOST:
                if self._commands is not None and self._client is not None and self._client.ended:
                    # The operation that ended the job notes its result at about the same time.
                    self._commands.await_results(_RESULTS_S)
                self._records.store_history(self._order.job_id, to_json(self.snapshot()))
        except Exception as error:  # the job has ended; the Dispatcher shows it with fewer details
            _logger.warning("Cannot store the history of the job: %s", error)


def _reason(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return short_form(error)
    if isinstance(error, SystemExit):
        return f"The program exited with code {error.code}."
    return user_traceback(error).strip()


def _lost_spark(error: BaseException, resumes: bool) -> bool:
    """Return whether a program failed because Spark's JVM died, or did not start as in earlier attempts."""
    if "pyspark" not in sys.modules or not isinstance(error, Exception):
        return False
    from penstock.spark.jvm import jvm_death
    from penstock.spark.session import SparkNotStarted

    if isinstance(error, SparkNotStarted):
        return resumes or jvm_death() is not None
    return not isinstance(error, PenstockError) and jvm_death() is not None


def _print(error: BaseException) -> None:
    text = short_form(error) if isinstance(error, PenstockError) else user_traceback(error)
    print(SECRETS.masked(text), file=sys.stderr, flush=True)


def main() -> None:
    try:
        order = read_order(Path(sys.argv[1]))
    except FileNotFoundError:
        # Another process was started for the attempt, has claimed it and removed the order.
        sys.exit(NOT_CLAIMED)
    folder = Path(order.folder)
    SECRETS.learn(order.settings)
    log_to_stderr()
    rotate_in_background([folder / LOG, folder / OUTPUT], order.log_bytes, order.log_files)
    code = JobManager(order).run()
    # The threads of the program must not keep the process and the cores of its job.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
