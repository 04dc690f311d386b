"""TTL cleanup: expired values are removed from storage without being read."""

import pytest
from ttl_job import TTL, ttl

from penstock.checkpoint.expiry import kept_by_compaction
from penstock.checkpoint.manifest import load
from penstock.common import Time
from penstock.datastream.state import StateTtlConfig


class TestCleanUp:
    NAMES = "value", "list", "map", "reducing", "aggregating"

    def fill(self, job, keys, now):
        for key in keys:
            job.at(now).use(key)
            job.value.update(1)
            job.list.add(2)
            job.map.put("a", 3)
            job.reducing.add(4)
            job.aggregating.add(5)

    def read(self, job):
        """Access each state once."""
        return job.value.value(), list(job.list), job.map.get("a"), job.reducing.get(), job.aggregating.get()

    def stored(self, job):
        return [{key for key, _ in job.stored(name)} for name in self.NAMES]

    def test_a_full_snapshot_omits_expired_values(self, start):
        job = start(ttl().cleanup_full_snapshot().build())
        self.fill(job, ["id1"], 50)
        job.cut()
        self.fill(job, ["id2"], 170)
        job.at(230)
        job.restore_from_base()
        assert self.stored(job) == [{"id2"}] * 5
        job.at(170)
        assert job.use("id1").value.value() is None
        assert job.use("id2").value.value() == 1

    def test_a_full_snapshot_keeps_list_elements_that_have_not_expired(self, start):
        job = start(ttl().cleanup_full_snapshot().update_ttl_on_read_and_write().build())
        job.at(0).list.add(1)
        job.at(50).list.add(2)
        job.at(120)
        job.restore_from_base()
        job.at(50)
        assert list(job.list) == [2]

    def test_a_full_snapshot_omits_expired_values_from_before_ttl(self, start):
        job = start(None)
        self.fill(job, ["old"], 0)
        job.cut()
        job.config = ttl().cleanup_full_snapshot().build()
        job.at(10).crash()
        job.at(109).restore_from_base()
        assert self.stored(job) == [{"old"}] * 5
        job.at(110).restore_from_base()
        assert self.stored(job) == [set()] * 5

    def test_a_full_snapshot_keeps_expired_values_without_cleanup(self, start):
        job = start(ttl().build())
        self.fill(job, ["a"], 0)
        job.at(500).restore_from_base()
        assert self.stored(job) == [{"a"}] * 5

    def test_cleanup_runs_in_the_background_by_default(self, start):
        job = start(StateTtlConfig.new_builder(Time.milliseconds(TTL)).build())
        self.fill(job, ["a"], 0)
        job.at(500).restore_from_base()
        assert self.stored(job) == [set()] * 5

    def test_incremental_cleanup_scans_the_state_a_few_entries_at_a_time(self, start, between):
        job = start(ttl().cleanup_incrementally(8, False).build())
        self.fill(job, [f"old {n}" for n in range(100)], 0)
        job.cut()
        job.at(200)
        sizes = []
        for _ in range(20):
            self.read(job.use("new"))
            job.cut()
            between(job)
            sizes.append(max(map(len, self.stored(job))))
        assert sizes[0] > 90
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] == 0

    def test_incremental_cleanup_removes_values_from_before_ttl(self, start):
        job = start(None)
        self.fill(job, ["a", "b"], 0)
        job.cut()
        job.config = ttl().cleanup_incrementally(20, False).build()
        job.crash()
        job.at(100).use("c")
        self.read(job)
        job.cut()
        assert self.stored(job) == [set()] * 5

    def test_incremental_cleanup_pauses_while_nothing_can_have_expired(self, start, between):
        job = start(ttl().cleanup_incrementally(50, False).build())
        job.at(0).use("a").value.update(1)
        job.at(10).use("b").value.update(1)
        job.cut()
        job.value.value()
        assert job.cut() != [], "the scan is complete and records the oldest entry"
        between(job)
        job.at(99).value.value()
        assert job.cut() == []
        between(job)
        job.at(100).value.value()
        job.cut()
        assert {key for key, _ in job.stored("value")} == {"b"}
        between(job)
        job.at(110).use("c").value.value()
        job.cut()
        assert job.stored("value") == []

    def test_incremental_cleanup_can_run_for_every_record(self, start):
        job = start(ttl().cleanup_incrementally(5, True).build())
        self.fill(job, ["a", "b"], 0)
        job.cut()
        job.at(100).cut()
        assert self.stored(job) == [{"a", "b"}] * 5
        job.records = 3
        job.cut()
        assert self.stored(job) == [set()] * 5

    def test_incremental_cleanup_is_repeatable_when_an_epoch_runs_again(self, start):
        job = start(ttl().cleanup_incrementally(3, False).build())
        self.fill(job, [f"{n}" for n in range(50)], 0)
        job.cut()
        job.at(100).value.value()
        job.cut()
        results = []
        for _ in range(3):
            job.value.value()
            results.append(list(job.overlay.changes()))
            job.lose_replicas()
            job.crash()
        assert results[0]
        assert results == [results[0]] * 3

    def test_incremental_cleanup_keeps_values_written_in_the_same_epoch(self, start):
        job = start(ttl().cleanup_incrementally(100, False).build())
        self.fill(job, ["a"], 0)
        job.cut()
        self.fill(job, ["a"], 100)
        job.cut()
        assert job.use("a").value.value() == 1
        assert list(job.list) == [2]
        assert job.map.get("a") == 3

    @pytest.mark.parametrize("event_time", [False, True])
    def test_timers_remove_a_value_when_it_expires(self, start, between, event_time):
        config = ttl().cleanup_by_timers()
        job = start((config.use_event_time() if event_time else config).build())
        self.fill(job, ["a"], 0)
        between(job)
        self.fill(job, ["b"], 50)
        between(job)
        job.at(99).cut()
        assert self.stored(job) == [{"a", "b"}] * 5
        between(job)
        job.at(100).cut()
        assert self.stored(job) == [{"b"}] * 5
        between(job)
        job.at(150).cut()
        assert self.stored(job) == [set()] * 5

    def test_timers_keep_a_value_that_was_accessed_again(self, start, between):
        job = start(ttl().cleanup_by_timers().update_ttl_on_read_and_write().build())
        self.fill(job, ["a"], 0)
        between(job)
        job.at(60).use("a")
        assert self.read(job) == (1, [2], 3, 4, 5)
        between(job)
        job.at(159).cut()
        assert self.stored(job) == [{"a"}] * 5
        job.at(160).cut()
        assert self.stored(job) == [set()] * 5

    def test_a_value_has_one_timer_however_often_it_is_written(self, start):
        job = start(ttl().cleanup_by_timers().build())
        for now in range(10):
            job.at(now).use("a").value.update(now)
            job.map.put("m", now)
            job.cut()
        assert len(job.overlay.timers["TTL_PROCESSING_TIME"].take(10**6)[0]) == 2

    def test_clearing_a_value_deletes_its_timer(self, start):
        job = start(ttl().cleanup_by_timers().build())
        job.at(0).value.update(1)
        job.map.put("m", 1)
        job.cut()
        job.at(10).value.clear()
        job.map.remove("m")
        job.cut()
        assert job.overlay.timers["TTL_PROCESSING_TIME"].take(10**6)[0] == []

    def test_a_value_from_before_ttl_gets_a_timer_at_its_next_write(self, start):
        job = start(None)
        self.fill(job, ["a"], 0)
        job.cut()
        job.config = ttl().cleanup_by_timers().build()
        job.crash()
        self.fill(job, ["a"], 0)
        job.cut()
        job.at(100).cut()
        assert self.stored(job) == [set()] * 5

    def test_a_timer_that_fires_too_early_for_a_longer_ttl_is_set_again(self, start):
        job = start(ttl().cleanup_by_timers().build())
        self.fill(job, ["a"], 0)
        job.cut()
        job.config = ttl(150).cleanup_by_timers().build()
        job.crash()
        job.at(100).cut()
        job.crash()
        job.at(149).cut()
        assert self.stored(job) == [{"a"}] * 5
        job.at(150).cut()
        assert self.stored(job) == [set()] * 5

    def test_compaction_keeps_values_that_have_not_expired(self, start):
        job = start(ttl().cleanup_in_rocksdb_compact_filter(1000).build())
        self.fill(job, ["a"], 0)
        job.at(50).use("b").list.add(1)
        job.cut()
        kept = []
        for now in (99, 100, 149, 150):
            job.at(now).cut()
            keep = kept_by_compaction(load(job.storage, job.version.id)[0], "uid")
            kept.append(sum(keep(key, value) for key, value in self.entries(job)))
        assert kept == [6, 1, 1, 0]

    def test_compaction_keeps_everything_unless_it_is_enabled_for_cleanup(self, start):
        job = start(ttl().build())
        self.fill(job, ["a"], 0)
        job.at(10**6).cut()
        assert kept_by_compaction(load(job.storage, job.version.id)[0], "uid") is None

    def entries(self, job):
        readers = [(group, job.replicas.reader(group)) for group in range(job.max_parallelism)]
        return [entry for group, reader in readers for entry in reader.scan(group.to_bytes(2, "big"))]
