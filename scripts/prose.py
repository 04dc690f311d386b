"""Find phrases that make our English read as a translation.

    python -m scripts.prose                # every checked file; what `make lint` runs
    python -m scripts.prose penstock/state docs/start

Text files are read line by line, Python files in full: docstrings, comments, messages and names of tests.
Where a phrase is right (a quotation, an API's word), end its line with `prose: ok` in a comment.
"""

import argparse
import bisect
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = {".md", ".py", ".rst", ".toml", ".txt"}
NAMES = {"Makefile"}
# They quote the phrases.
SKIPPED = {"scripts/prose.py", "tests/scripts/test_prose.py", "constraints.txt"}
ALLOWED = "prose: ok"

PHRASES = {
    r"nobody|somebody|whoever|whomever": "name the subject: the user, the driver, another process",
    r"anew": "again, from scratch; rebuilt, rewritten",
    r"besides?": "next to, alongside, concurrently; in addition to",
    r"so-many|so-manieth|so many": "n, every n-th; or give the number",
    r"told": "passed, reported, notified, configured",
    r"of (?:its|their|one's|your|our|his) own": "its own X, a dedicated X, by itself",
    r"as (?:it is|it was|they are|they were)": "unchanged, in place",
    r"what (?:is|are|was|were)": "name the thing",
    r"(?:is|are|was|were) (?-i:no|none)": "is not a; has no; does not exist",
    r"so that [^.;:]*?\b(?:not|no|never|none)": "to keep X from; otherwise",
    r"may": "can (ability, permission), might (possibility)",
}
PATTERNS = [
    (re.compile(rf"\b(?:{phrase})\b".replace(" ", r"\s+"), re.IGNORECASE), hint) for phrase, hint in PHRASES.items()
]
# A month, not a verb.
MONTH = re.compile(r"\bMay (?:\d|and\b)|\d\.? May\b")

TEST = re.compile(r"^\s*def (test_\w+)")
# A name that begins so continues the name of its class, and cannot stand alone.
FRAGMENT = re.compile(
    r"test_(?:of|and|or|but|that|which|whose|who|where|with|without|by|at|for|from|to|in|into|on|until|within|though|"
    r"is|are|has|have|does|do|was|were|can|cannot|may|its|their|they|it|those|then|also|not|even|only)_"
)

Finding = tuple[int, str, str]


def findings(text: str) -> Iterator[Finding]:
    """Yield line number, phrase and remedy for each phrase to avoid in `text`.

    A phrase that runs over the end of a line counts for the line on which it begins.
    """
    lines = text.splitlines()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    joined = re.sub(r"\n(\s*(?:#|>)?\s*)", lambda match: " " * len(match.group()), text)
    months = {match.start() for match in MONTH.finditer(joined)} | {match.end() - 3 for match in MONTH.finditer(joined)}
    found = []
    for pattern, hint in PATTERNS:
        for match in pattern.finditer(joined):
            if match.start() not in months:
                line_number = bisect.bisect_right(starts, match.start())
                found.append((line_number, " ".join(match.group().split()), hint))
    for number, line in enumerate(lines, 1):
        test = TEST.match(line)
        if test and FRAGMENT.match(test.group(1)):
            found.append((number, test.group(1), "a sentence that stands without its class"))
    for number, phrase, hint in sorted(found):
        if ALLOWED not in lines[number - 1]:
            yield number, phrase, hint


def checked_files(paths: list[str]) -> list[Path]:
    """Return the tracked and new files below `paths` that hold prose, in order."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [
        ROOT / name
        for name in sorted(set(listed))
        if name not in SKIPPED
        and (Path(name).suffix in SUFFIXES or Path(name).name in NAMES)
        and (ROOT / name).is_file()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Find phrases that read as a translation.")
    parser.add_argument("paths", nargs="*", help="files or directories; all of the repository by default")
    parser.add_argument("--count", action="store_true", help="print the number of findings per file only")
    options = parser.parse_args()
    total = 0
    for path in checked_files(options.paths):
        found = list(findings(path.read_text()))
        total += len(found)
        name = path.relative_to(ROOT)
        if options.count and found:
            print(f"{len(found):5} {name}")
        elif found:
            for number, phrase, hint in found:
                print(f"{name}:{number}: {phrase!r}: {hint}")
    print(f"{total} phrases to avoid." if total else "The prose check passed.")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
