"""An executor dies at each rescale of a job with standbys and two state servers."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from programs import expected_counts, expected_output, words
from query_jobs import free_ports
from rescaled_standby_job import EXECUTORS, FIRST, JOB, MOST_EPOCHS, RESCALES
from standby_job import blocks_of

from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("standbys")
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("rescaled_standby_job.py")),
            json.dumps({"directory": str(directory), "ports": free_ports(4)}),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {"directory": directory, **json.loads((directory / "said.json").read_text())}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
class TestAJobWhoseExecutorsDieAtItsRescales:
    def test_every_rescale_met_a_death_and_the_job_recovered_from_it_in_place(self, said: Any) -> None:
        assert [(each["parallelism"], each["when"]) for each in said["rescales"]] == [*map(tuple, RESCALES)]
        assert said["restarts"] == 0
        for each in said["rescales"]:
            assert "killed" in each or (said["directory"] / f"killed-{each['parallelism']}").exists()
            assert each["asked"] < each["recovered"] < MOST_EPOCHS

    def test_each_epoch_ran_every_subtask_once_at_one_parallelism(self, said: Any) -> None:
        counts = [
            Counter(subtask.partition("/")[0] for subtask in places) for _, places in sorted(said["places"].items())
        ]
        assert all(each["count"] == each["sum"] for each in counts)
        assert {each["count"] for each in counts} == {FIRST, *(parallelism for parallelism, _ in RESCALES)}
        assert sorted(map(int, said["places"])) == [*range(1, len(counts) + 1)]

    def test_the_next_epoch_runs_on_survivors(self, said: Any) -> None:
        for each in said["rescales"]:
            died, killed = each.get("died", each["asked"]), each.get("killed")
            survivors = {*each["executors"]} - {killed}
            assert survivors & {*said["places"][str(died + 1)].values()}
            after = [places for number, places in said["places"].items() if int(number) > died]
            assert all(killed not in places.values() for places in after)

    def test_each_block_has_a_standby_on_another_executor_again(self, said: Any) -> None:
        for each in said["rescales"]:
            places = said["places"][str(each["recovered"])]
            assert len(each["held"]) == EXECUTORS
            assert len(each["standbys"]) == 2 * 16
            for subtask in places:
                assert all(each["standbys"][block] for block in blocks_of(subtask, each["parallelism"]))

    def test_the_state_and_the_output_are_those_of_each_record_once(self, said: Any) -> None:
        storage = newest_lineage(said["directory"] / "checkpoints" / JOB)
        manifest = last_manifest(storage)
        records = words(100 * MOST_EPOCHS, 3)[: manifest.records["words"]]
        assert len(records) > 1000
        assert read_values(storage, "count", "n", int) == expected_counts(records)
        output = [
            tuple(value)
            for path in (said["directory"] / "output").iterdir()
            if int(path.name.partition("-")[0]) <= manifest.id
            for value in json.loads(path.read_text())
        ]
        assert Counter(output) == expected_output(records)

    def test_every_read_through_the_two_servers_shows_its_checkpoint(self, said: Any) -> None:
        assert said["wrong"] == []
        assert min(said["reads"].get(kind, 0) for kind in ("get", "scan", "pinned", "pinned scan")) > 0
