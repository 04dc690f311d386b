"""Bases and retention: which files are kept and removed, and that needed files are never removed, even in crashes."""

import pytest
from dying import Died, Dying
from epoch_jobs import GROUPS, STATES, Clock, CommitLog, program
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.bases import all_blocks
from penstock.checkpoint.manifest import Version, load, manifest_name
from penstock.checkpoint.manifest_chain import ManifestChain, _manifests
from penstock.checkpoint.retention import Retention
from penstock.driver.epoch_settings import Settings
from penstock.driver.epochs import EpochDriver
from penstock.runtime.report import DeltaHandle, OperatorReport, Report, encode_report
from penstock.runtime.rows import REPORT
from penstock.state.access import StateAccess
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.engines.memory import MemoryEngine
from penstock.state.keys import encode_key
from penstock.state.local_storage import LocalStorage
from penstock.state.overlay import Nothing, Overlay
from penstock.state.replica import Replicas

FILES = ("manifests/", "deltas/", "bases/")


class Tasks:
    """Runs epochs that set keys to values, with deltas in files."""

    def __init__(self, storage, inline_bytes=0):
        self.storage = storage
        self.inline_bytes = inline_bytes
        self.values = {}

    def execute(self, parameters):
        number = parameters.number
        overlay = Overlay(GROUPS)
        state = overlay.register(ValueStateDescriptor("n", int))
        overlay.begin(number, Nothing())
        for key, value in self.values.items():
            overlay.key = encode_key(key)
            state.update(value)
        deltas = []
        if changes := overlay.changes():
            access = StateAccess(None, self.storage, None, self.inline_bytes)
            written = access.write_delta(number, changes, parameters.blocks["count"])
            deltas = [
                DeltaHandle(
                    name=written.name,
                    size=written.size,
                    entries=written.entries,
                    blocks=written.blocks,
                    inline=written.inline,
                )
            ]
        return [
            (
                REPORT,
                encode_report(
                    Report(chain=0, subtask=0, epoch=number, records_in=1, sent=[], received=[], operators=[])
                ),
            ),
            (
                REPORT,
                encode_report(
                    Report(
                        chain=1,
                        subtask=0,
                        epoch=number,
                        records_in=0,
                        sent=[],
                        received=[],
                        operators=[OperatorReport(uid="count", states=STATES, deltas=deltas)],
                    )
                ),
            ),
        ]


class Lineage:
    """One lineage on disk, and the expected state of each of its checkpoints."""

    def __init__(self, root, **options):
        self.storage = Dying(root)
        self.tasks = Tasks(self.storage)
        self.options = {"asynchronous": False, "base_bytes": 0, "retained": 1} | options
        self.models = [{}]
        self.start()

    def start(self):
        self.driver = EpochDriver(
            program(), self.storage, Settings(**self.options), self.tasks.execute, {"out": CommitLog()}, clock=Clock()
        )
        self.driver.recover()

    def epoch(self, values, dies_after=None):
        """Run one epoch. With `dies_after`, the driver dies at that change of the storage and is restarted."""
        self.tasks.values = values
        self.storage.left = dies_after
        before = self.driver.next_number
        try:
            self.driver.run_epoch(None, {})
        except Died:
            self.storage.left = None
            self.start()
        self.storage.left = None
        if self.driver.next_number > before:
            self.models.append({**self.models[-1], **values})

    def retained(self):
        """Return the checkpoints that must be usable."""
        last = self.driver.last.id
        return range(max(1, last - self.options["retained"] + 1), last + 1)

    def state_at(self, number):
        manifest, version = load(self.storage, number)
        history = ManifestChain(self.storage, version)
        replicas = Replicas("count", manifest.blocks["count"], history, lambda uid, groups: MemoryEngine())
        overlay = Overlay(GROUPS)
        state = overlay.register(ValueStateDescriptor("n", int))
        overlay.begin(0, replicas)
        values = {}
        for key in self.models[-1]:
            overlay.key = encode_key(key)
            if (value := state.value()) is not None:
                values[key] = value
        replicas.close()
        return values

    def check(self):
        for number in self.retained():
            expected = {key: value for key, value in self.models[number].items() if value is not None}
            assert self.state_at(number) == expected, number

    def files(self):
        """Return all files except bases that the next manifest will announce."""
        names = {name for folder in FILES for name in self.storage.list(folder)}
        return {name for name in names if not name.startswith(f"bases/{self.driver.last.id:012d}")}

    def sweep(self):
        """Remove the files that a continuing driver removes."""
        Retention(self.storage, self.options["retained"]).sweep(self.driver.last)

    def needed(self):
        """Return, by definition, the files read to restore each retained checkpoint and its parent."""
        last = self.driver.last.id
        read = set()

        class Watching(LocalStorage):
            def read(self, name):
                read.add(name)
                return super().read(name)

            def view(self, name):
                read.add(name)
                return super().view(name)

        watching = Watching(self.storage._root)
        for number in range(max(1, last - self.options["retained"]), last + 1):
            manifest, version = load(watching, number)
            history = ManifestChain(watching, Version(id=number, digest=version.digest))
            _manifests.clear()
            for block in all_blocks("count", manifest.blocks["count"]):
                history.steps("count", block.groups, None)
        return read


@pytest.fixture
def lineage(tmp_path):
    return lambda **options: Lineage(tmp_path / "lineage", **options)


class TestBases:
    def test_a_base_is_written_when_deltas_are_twice_as_large(self, lineage):
        line = lineage(base_bytes=2000)
        sizes = []
        for number in range(40):
            line.epoch({f"key {key}": number for key in range(20)})
            sizes.append(sum(len(line.storage.read(name)) for name in line.files()))
        line.check()
        assert line.storage.list("bases/")
        # The stored size fluctuates but does not grow with the number of epochs.
        assert max(sizes[20:]) <= 1.2 * max(sizes[:20])

    def test_bases_of_unchanged_blocks_are_not_rewritten(self, lineage):
        line = lineage()
        for _ in range(5):
            line.epoch({f"key {key}": 0 for key in range(200)})
        for _ in range(3):
            line.epoch({})
        before = {base.name for base in line.driver.last.bases["count"].values()}
        for number in range(10):
            line.epoch({"key 7": number})
        after = {base.name for base in line.driver.last.bases["count"].values()}
        assert len(before) == 16
        assert len(before & after) == 15

    def test_small_changes_are_merged_before_there_are_too_many_to_walk(self, lineage, monkeypatch):
        monkeypatch.setattr("penstock.checkpoint.bases.LONGEST_WALK", 20)
        monkeypatch.setattr("penstock.checkpoint.housekeeping.LONGEST_WALK", 20)
        line = lineage(base_bytes=1 << 30)
        for number in range(100):
            line.epoch({f"key {number % 3}": number})
        line.check()
        assert len(line.storage.list("manifests/")) < 60

    def test_bases_are_announced_once_even_if_the_driver_fails_after_the_checkpoint(self, lineage):
        line = lineage()
        values = {f"key {key}": 0 for key in range(200)}
        line.epoch(values)
        # A sink that fails ends the epoch here, and the same driver continues with the next one.
        line.driver._housekeeping.published, published = (
            lambda manifest, version: None,
            line.driver._housekeeping.published,
        )
        line.epoch(values)
        once = line.driver.last.since_base["count"]
        line.driver._housekeeping.published = published
        line.epoch(values)
        twice = line.driver.last.since_base["count"]
        based = {block for block in once if block in twice and twice[block] == 2 * once[block]}
        assert len(based) == 8
        line.epoch({})
        line.check()

    def test_bases_merged_concurrently_with_epochs_are_announced_when_they_are_done(self, lineage):
        line = lineage(asynchronous=True)
        for number in range(30):
            line.epoch({f"key {key}": number for key in range(number % 5, 40)})
        line.driver.stop()
        line.epoch({"key 1": 31})
        line.check()
        assert any(base.name for base in line.driver.last.bases["count"].values())

    def test_a_failed_merge_is_retried_and_fails_no_epoch(self, lineage, caplog):
        line = lineage(asynchronous=True)
        calls = []

        def broken(storage, version, blocks):
            calls.append(version.id)
            raise OSError("the executor is gone")

        line.driver._housekeeping._merge = broken
        for number in range(20):
            line.epoch({"a": number})
        line.driver.stop()
        line.driver._housekeeping._collect()
        assert len(calls) > 1
        assert "the executor is gone" in caplog.text
        line.check()


class TestRetention:
    @pytest.mark.parametrize("retained", [1, 2, 5])
    def test_retention_keeps_the_configured_number_of_checkpoints_and_removes_the_others(self, lineage, retained):
        line = lineage(retained=retained)
        for number in range(40):
            line.epoch({f"key {(number * 7 + each) % 50}": number for each in range(5)})
            if number % 5 == 0:
                line.check()
        line.sweep()
        assert line.files() == line.needed()

    def test_a_sweep_removes_files_of_failed_attempts_and_dead_drivers(self, lineage):
        line = lineage()
        for number in range(3):
            line.epoch({"a": number})
        line.storage.write("deltas/000000000002/late.arrow", b"a zombie's")
        line.storage.write("bases/000000000001/never-announced.arrow", b"a dead driver's")
        line.start()
        line.epoch({"a": 4})
        assert not [name for name in line.files() if "late" in name or "never" in name]
        line.check()

    def test_the_driver_lists_files_of_state_only_in_its_first_sweep(self, lineage, monkeypatch):
        line = lineage()
        listed = []
        found = line.storage.list
        monkeypatch.setattr(line.storage, "list", lambda prefix: listed.append(prefix) or found(prefix))
        for number in range(40):
            line.epoch({f"key {key}": number for key in range(20)})
        assert listed.count("deltas/") == listed.count("bases/") == 1
        line.check()
        monkeypatch.undo()
        line.sweep()
        assert line.files() == line.needed()

    def test_later_sweeps_list_now_and_then_to_find_files_of_failed_attempts(self, lineage, monkeypatch):
        monkeypatch.setattr("penstock.checkpoint.housekeeping._LIST_EVERY", 10)
        line = lineage()
        for number in range(3):
            line.epoch({"a": number})
        line.storage.write("deltas/000000000003/failed.arrow", b"of an attempt that failed")
        for number in range(12):
            line.epoch({"a": number})
        assert not line.storage.exists("deltas/000000000003/failed.arrow")

    def test_a_sweep_after_a_restart_in_the_same_process_finds_files_of_the_failed_attempt(self, lineage):
        line = lineage()
        for number in range(3):
            line.epoch({"a": number})
        line.storage.write("deltas/000000000003/failed.arrow", b"of the attempt that failed")
        line.driver.recover()
        for number in range(20):
            line.epoch({"a": number})
        assert not line.storage.exists("deltas/000000000003/failed.arrow")

    def test_a_checkpoint_that_is_published_during_a_sweep_is_swept_later(self, lineage, monkeypatch):
        line = lineage(base_bytes=1 << 30)
        line.epoch({"a": 0})
        retention = line.driver._housekeeping._retention
        first, found = line.driver.last, line.storage.list

        def list_during_an_epoch(prefix):
            names = found(prefix)
            if prefix == "bases/":
                monkeypatch.undo()
                line.epoch({"a": 1})
            return names

        monkeypatch.setattr(line.storage, "list", list_during_an_epoch)
        monkeypatch.setattr("penstock.checkpoint.housekeeping._SWEEP_EVERY", 1000)
        retention.sweep(first)
        retention.sweep(line.driver.last, listing=False)
        assert line.storage.list("deltas/")[-1] in retention._needed.names()
        line.check()

    def test_a_sweep_keeps_files_of_the_running_epoch_and_of_a_later_driver(self, lineage):
        line = lineage()
        for number in range(5):
            line.epoch({"a": number})
        zombie = line.driver
        line.start()
        for number in range(5):
            line.epoch({"a": 10 + number, f"key {number}": number})
        before = line.files()
        zombie._housekeeping._retention.sweep(zombie.last)
        kept = {name for name in before if int(name.split("/")[1]) >= zombie.last.id}
        assert kept <= line.files()

    def test_a_sweep_keeps_an_old_manifest_that_holds_sparks_log(self, lineage):
        line = lineage()
        line.tasks.values = {"a": 0}
        line.driver.run_epoch(0, {"offsets/0": b"zero"}, log_index={"offsets/0": 1})
        line.models.append({"a": 0})
        for number in range(20):
            line.epoch({"a": number})
        assert manifest_name(1) in line.files()
        assert manifest_name(5) not in line.files()


@settings(max_examples=25, deadline=None)
@given(
    epochs=st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from([f"key {n}" for n in range(12)]), st.none() | st.integers(0, 99), max_size=5
            ),
            st.none() | st.integers(0, 12),
        ),
        min_size=1,
        max_size=12,
    ),
    retained=st.sampled_from([1, 1, 3]),
    base_bytes=st.sampled_from([0, 3000]),
)
def test_a_driver_that_dies_anywhere_loses_nothing_and_leaves_no_orphans(
    tmp_path_factory, epochs, retained, base_bytes
):
    line = Lineage(tmp_path_factory.mktemp("lineage"), retained=retained, base_bytes=base_bytes)
    for values, dies_after in epochs:
        line.epoch(values, dies_after)
        if line.driver.last is not None:
            line.check()
    line.epoch({"last": 1})
    line.check()
    line.sweep()
    assert line.files() == line.needed()
