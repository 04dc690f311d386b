"""Time to live of every kind of keyed state: values expire on time, regardless of snapshots and restores."""

import pytest
from ttl_job import TTL, steps, ttl

from penstock.datastream.state import StateTtlConfig
from penstock.state.keyed import KeyedState


class TestExpiry:
    def test_a_value_lives_for_its_ttl_after_the_last_write(self, start, between):
        job = start(ttl().build())
        steps(
            job,
            between,
            (0, lambda job: job.value.update(11), None),
            (20, lambda job: job.value.value(), 11),
            (50, lambda job: job.value.update(21), None),
            (120, lambda job: job.value.value(), 21),
            (170, lambda job: job.value.update(31), None),
            (220, lambda job: job.value.value(), 31),
            (300, lambda job: job.value.value(), None),
        )
        job.cut()
        assert job.stored("value") == []

    def test_a_value_lives_until_the_last_millisecond_of_its_ttl(self, start, between):
        steps(
            start(ttl().build()),
            between,
            (0, lambda job: job.value.update(1), None),
            (99, lambda job: job.value.value(), 1),
            (100, lambda job: job.value.value(), None),
        )

    def test_the_elements_of_a_list_expire_individually(self, start, between):
        job = start(ttl().build())
        steps(
            job,
            between,
            (0, lambda job: job.list.add_all([5, 7, 10]), None),
            (50, lambda job: job.list.add_all([8, 9, 11]), None),
            (120, lambda job: job.list.get(), [8, 9, 11]),
            (130, lambda job: job.list.add(12), None),
            (150, lambda job: job.list.get(), [12]),
            (230, lambda job: job.list.get(), []),
        )
        job.cut()
        assert job.stored("list") == []

    def test_the_entries_of_a_map_expire_individually(self, start, between):
        job = start(ttl().build())
        steps(
            job,
            between,
            (0, lambda job: job.map.put("a", 1), None),
            (50, lambda job: job.map.put("b", 2), None),
            (60, lambda job: sorted(job.map.items()), [("a", 1), ("b", 2)]),
            (120, lambda job: (job.map.get("a"), job.map.contains("a"), job.map.get("b")), (None, False, 2)),
            (121, lambda job: job.map.keys(), ["b"]),
            (122, lambda job: job.map.is_empty(), False),
            (150, lambda job: job.map.is_empty(), True),
            (150, lambda job: job.map.values(), []),
        )
        job.cut()
        assert job.stored("map") == []

    def test_a_reducing_state_starts_over_after_it_has_expired(self, start, between):
        steps(
            start(ttl().build()),
            between,
            (0, lambda job: job.reducing.add(5), None),
            (50, lambda job: job.reducing.add(7), None),
            (120, lambda job: job.reducing.get(), 12),
            (170, lambda job: job.reducing.add(6), None),
            (170, lambda job: job.reducing.get(), 6),
        )

    def test_an_aggregating_state_starts_over_after_it_has_expired(self, start, between):
        steps(
            start(ttl().build()),
            between,
            (0, lambda job: job.aggregating.add(5), None),
            (50, lambda job: job.aggregating.add(7), None),
            (120, lambda job: job.aggregating.get(), 6.0),
            (170, lambda job: job.aggregating.get(), None),
            (170, lambda job: job.aggregating.add(3), None),
            (180, lambda job: job.aggregating.get(), 3.0),
        )

    def test_a_cleared_value_is_removed_before_it_expires(self, start, between):
        steps(
            start(ttl().build()),
            between,
            (0, lambda job: (job.value.update(1), job.list.add(1), job.map.put("a", 1)), (None, None, None)),
            (10, lambda job: (job.value.clear(), job.list.clear(), job.map.clear()), (None, None, None)),
            (20, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (None, [], None)),
            (30, lambda job: job.list.update([4, 5]), None),
            (40, lambda job: job.list.get(), [4, 5]),
        )

    @pytest.mark.parametrize("milliseconds", [2**63 - 1, 2**62])
    def test_the_longest_ttl_does_not_overflow(self, start, between, milliseconds):
        steps(
            start(ttl(milliseconds).cleanup_by_timers().build()),
            between,
            (10, lambda job: (job.value.update(1), job.list.add(2), job.map.put("a", 3)), (None, None, None)),
            (50, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (1, [2], 3)),
            (2**61, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (1, [2], 3)),
        )

    def test_a_restore_resets_access_times_to_those_of_the_snapshot(self, start):
        job = start(ttl().build())
        job.at(50).use("k1").value.update(1)
        job.at(100).use("k2").value.update(2)
        job.cut()
        job.at(120).use("k1").value.update(11)
        job.use("k2").value.update(12)
        job.crash()
        assert job.at(180).use("k1").value.value() is None
        assert job.use("k2").value.value() == 2

    @pytest.mark.parametrize("limit", [0, 1, 200_000])
    def test_values_in_the_read_cache_expire(self, start, monkeypatch, limit):
        monkeypatch.setattr(KeyedState, "cache_limit", limit)
        job = start(ttl().build())
        keys = ["a", "b", "c"]
        for place, key in enumerate(keys):
            job.at(10 * place).use(key)
            job.value.update(place)
            job.list.add(place)
            job.map.put("m", place)
        job.cut()
        for now in range(20, 140, 5):
            job.at(now)
            live = [place for place in range(3) if 10 * place + TTL > now]
            for _ in range(2):
                held = [(job.use(key).value.value(), list(job.list), job.map.get("m")) for key in keys]
                assert held == [(place, [place], place) if place in live else (None, [], None) for place in range(3)]


class TestUpdateTypes:
    def test_a_read_extends_the_life_of_a_value_if_configured(self, start, between):
        steps(
            start(ttl().update_ttl_on_read_and_write().build()),
            between,
            (0, lambda job: (job.value.update(1), job.list.add(2), job.map.put("a", 3)), (None, None, None)),
            (50, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (1, [2], 3)),
            (120, lambda job: (job.value.value(), list(job.list), dict(job.map.items())), (1, [2], {"a": 3})),
            (210, lambda job: (job.value.value(), list(job.list), job.map.contains("a")), (1, [2], True)),
            (320, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (None, [], None)),
        )

    def test_a_read_does_not_extend_the_life_of_a_value_by_default(self, start, between):
        steps(
            start(ttl().build()),
            between,
            (0, lambda job: job.value.update(1), None),
            (50, lambda job: job.value.value(), 1),
            (120, lambda job: job.value.value(), None),
        )

    def test_values_do_not_expire_if_ttl_is_disabled(self, start, between):
        job = start(ttl().set_update_type(StateTtlConfig.UpdateType.Disabled).build())
        assert not job.overlay.ttl.forms()
        steps(
            job,
            between,
            (0, lambda job: job.value.update(1), None),
            (10**9, lambda job: job.value.value(), 1),
        )


class TestVisibility:
    def test_an_expired_value_can_be_returned_once_if_configured(self, start, between):
        steps(
            start(ttl().return_expired_if_not_cleaned_up().build()),
            between,
            (0, lambda job: (job.value.update(1), job.list.add(2), job.map.put("a", 3)), (None, None, None)),
            (120, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (1, [2], 3)),
            (120, lambda job: (job.value.value(), list(job.list), job.map.get("a")), (None, [], None)),
        )

    def test_expired_reduced_values_and_map_entries_can_be_returned_once(self, start, between):
        steps(
            start(ttl().return_expired_if_not_cleaned_up().build()),
            between,
            (0, lambda job: (job.reducing.add(1), job.map.put("a", 3)), (None, None)),
            (120, lambda job: job.map.is_empty(), False),
            (120, lambda job: (job.reducing.get(), list(job.map.values())), (1, [3])),
            (120, lambda job: (job.reducing.get(), job.map.is_empty()), (None, True)),
        )


class TestEventTime:
    def test_event_time_ttl_depends_only_on_the_watermark(self, start, between):
        job = start(ttl().use_event_time().build())
        job.at(0).value.update(1)
        job.clock.now = 10**9
        between(job)
        assert job.value.value() == 1
        job.clock.watermark = 100
        between(job)
        assert job.value.value() is None

    def test_values_written_before_the_first_watermark_do_not_expire(self, start, between):
        job = start(ttl().use_event_time().cleanup_by_timers().cleanup_full_snapshot().build())
        job.clock.watermark = -(2**63)
        job.value.update(1)
        job.list.add(2)
        job.map.put("a", 3)
        between(job)
        job.at(10**9)
        between(job)
        assert (job.value.value(), list(job.list), job.map.get("a")) == (1, [2], 3)
