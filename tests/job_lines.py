"""The lines that a job prints to standard error when it starts and when it ends."""

import re

_START = re.compile(r"Job '[^']+' \([0-9a-f]{32}\) (starts|resumes) from .*, parallelism \d+, .*\.\n")
_END = re.compile(
    r"Job '[^']+' (finished|failed|stopped|was cancelled) after .*: [\d,]+ epochs?, [\d,]+ records?\..*\n"
)

_REMOVED = re.compile(r"Removed the checkpoints of a finished job: .*\.\n")


def without_job_lines(printed: str, jobs: int = 1) -> str:
    """The rest of what was printed, after checking that each job printed its two lines. A job that keeps no checkpoints
    when it is over says that it removed them."""
    others, starts = _START.subn("", printed)
    others, ends = _END.subn("", others)
    others, removed = _REMOVED.subn("", others)
    assert removed <= jobs, printed
    assert (starts, ends) == (jobs, jobs), printed
    return others
