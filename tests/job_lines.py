"""The lines that a job prints to standard error at its start and end."""

import re

_START = re.compile(r"Job '[^']+' \([0-9a-f]{32}\) (starts|resumes) from .*, parallelism \d+, .*\.\n")
_END = re.compile(
    r"Job '[^']+' (finished|failed|stopped|was cancelled) after .*: [\d,]+ epochs?, [\d,]+ records?\..*\n"
)

_REMOVED = re.compile(r"Removed the checkpoints of a finished job: .*\.\n")


def without_job_lines(printed: str, jobs: int = 1) -> str:
    """Return the output without the job lines, after checking that each job printed both of its lines.

    A job that keeps no checkpoints after its end also prints that it removed them.
    """
    others, starts = _START.subn("", printed)
    others, ends = _END.subn("", others)
    others, removed = _REMOVED.subn("", others)
    assert removed <= jobs, printed
    assert (starts, ends) == (jobs, jobs), printed
    return others
