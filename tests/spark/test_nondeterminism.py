"""User code with different output at every attempt: no manifest can mix two attempts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import words

from penstock.testing.snapshots import newest_lineage, read_values

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORDS = words(160, 3)
PER_EPOCH = 20
# An executor loses more than a worker does: its shuffle output and its replicas. test_file_crashes.py kills executors
# at the other points.
POINTS = [
    "source.processed",
    "source.reported",
    "level1.processed",
    "level1.reported",
    "level2.received",
    "level2.processed",
    "level2.snapshot",
]


def tags(values: dict[str, str]) -> list[str]:
    return sorted(tag for text in values.values() for tag in text.split())


def test_tags_of_lost_executors_appear_nowhere(tmp_path: Path) -> None:
    """Each record gets a uuid4 in stage 1. Stage 1, stage 2 and the output all keep it.

    Executors are killed in the middle of epochs, before and after stage 1 has passed on the tags.
    """
    markers = [tmp_path / f"crashed-{point}" for point in POINTS]
    crashes = [f"executor:{point}:{2 + index}:{markers[index]}" for index, point in enumerate(POINTS)]
    arguments = tmp_path / "arguments.json"
    arguments.write_text(
        json.dumps(
            {"directory": str(tmp_path), "master": "local-cluster[2,1,1024]", "tagged": WORDS, "per_epoch": PER_EPOCH}
        )
    )
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("programs.py")), str(arguments)],
        env={**os.environ, "PENSTOCK_CRASH": ";".join(crashes)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert all(marker.exists() for marker in markers)
    # The program compared the state of the stages at every checkpoint, one per epoch.
    assert done.stdout.count("the same tags") == len(WORDS) // PER_EPOCH + 1
    storage = newest_lineage(tmp_path / "checkpoints" / "tags")
    first = tags(read_values(storage, "tag", "tags", str))
    shown = [tag for path in (tmp_path / "output").iterdir() for tag in json.loads(path.read_text())]
    assert len(set(first)) == len(WORDS)
    assert tags(read_values(storage, "gather", "tags", str)) == first
    assert sorted(shown) == first
    counters = json.loads((tmp_path / "counters.json").read_text())
    names = ["words.numRecordsIn", "tag.seen", "tag.numRecordsIn", "gather.numRecordsIn"]
    assert [counters[name] for name in names] == [len(WORDS)] * 4
