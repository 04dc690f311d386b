"""The lines that a job prints to standard error when it starts and when it ends."""

import re

_START = re.compile(r"Job '[^']+' \([0-9a-f]{32}\) (starts|resumes) from .*, parallelism \d+, .*\.\n")
_END = re.compile(
    r"Job '[^']+' (finished|failed|stopped|was cancelled) after .*: [\d,]+ epochs?, [\d,]+ records?\..*\n"
)


def without_job_lines(printed: str, jobs: int = 1) -> str:
    """What else is printed, having seen that each of so many jobs printed its two lines."""
    others, starts = _START.subn("", printed)
    others, ends = _END.subn("", others)
    assert (starts, ends) == (jobs, jobs), printed
    return others
