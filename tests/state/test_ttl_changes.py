"""Enabling, disabling and changing TTL for states that already have data."""

import pytest
from ttl_job import steps, ttl


class TestEnablingAndDisabling:
    def fill(self, job):
        job.value.update(1)
        job.list.add(2)
        job.map.put("a", 3)
        job.reducing.add(4)
        job.aggregating.add(5)

    def held(self, job):
        return job.value.value(), list(job.list), dict(job.map.items()), job.reducing.get(), job.aggregating.get()

    FILLED = 1, [2], {"a": 3}, 4, 5.0
    EMPTY = None, [], {}, None, None

    def change(self, job, config, base):
        if base:
            job.restore_from_base()
        else:
            job.cut()
        job.config = config
        job.crash()

    @pytest.mark.parametrize("base", [False, True])
    def test_enabling_ttl_counts_existing_values_as_accessed_at_that_time(self, start, between, base):
        job = start(None)
        self.fill(job.at(0))
        job.at(1000)
        self.change(job, ttl().build(), base)
        steps(
            job,
            between,
            (1000, self.held, self.FILLED),
            (1050, lambda job: (job.value.update(11), job.list.add(12), job.map.put("b", 13)), (None, None, None)),
            (1099, self.held, (11, [2, 12], {"a": 3, "b": 13}, 4, 5.0)),
            (1100, self.held, (11, [12], {"b": 13}, None, None)),
            (1150, self.held, self.EMPTY),
        )
        job.cut()
        assert [job.stored(name) for name in ("value", "list", "map", "reducing")] == [[], [], [], []]

    def test_values_from_before_ttl_can_be_read_and_cleared(self, start, between):
        job = start(None)
        self.fill(job.at(0))
        self.change(job, ttl().update_ttl_on_read_and_write().build(), base=False)
        steps(
            job,
            between,
            (50, self.held, self.FILLED),
            (140, self.held, self.FILLED),
            (150, lambda job: (job.value.clear(), job.list.clear(), job.map.remove("a")), (None, None, None)),
            (160, self.held, (None, [], {}, 4, 5.0)),
        )
        job.cut()
        assert [job.stored(name) for name in ("value", "list", "map")] == [[], [], []]

    def test_values_no_longer_expire_after_ttl_is_disabled(self, start, between):
        job = start(ttl().build())
        self.fill(job.at(0))
        self.change(job, None, base=False)
        steps(
            job,
            between,
            (10**6, self.held, self.FILLED),
            (10**6, lambda job: job.list.add(12), None),
            (10**7, lambda job: job.list.get(), [2, 12]),
        )

    def test_enabling_ttl_again_counts_from_the_last_write(self, start, between):
        job = start(ttl().build())
        self.fill(job.at(0))
        self.change(job, None, base=False)
        job.at(500).value.update(11)
        self.change(job, ttl().build(), base=False)
        steps(job, between, (599, self.held, (11, [], {}, None, None)), (600, self.held, self.EMPTY))

    def test_a_new_ttl_applies_to_existing_values(self, start, between):
        job = start(ttl(1000).build())
        self.fill(job.at(0))
        self.change(job.at(100), ttl(200).build(), base=False)
        steps(job, between, (199, self.held, self.FILLED), (200, self.held, self.EMPTY))

    def test_changing_the_clock_counts_existing_values_as_accessed_at_that_time(self, start, between):
        job = start(ttl().build())
        self.fill(job.at(10**6))
        job.cut()
        job.config = ttl().use_event_time().build()
        job.clock.watermark = 500
        job.crash()
        assert self.held(job) == self.FILLED
        between(job)
        job.clock.watermark = 599
        assert self.held(job) == self.FILLED
        between(job)
        job.clock.watermark = 600
        assert self.held(job) == self.EMPTY

    def test_a_state_that_a_subtask_does_not_register_keeps_its_form(self, start):
        job = start(ttl().build())
        self.fill(job.at(0))
        job.cut()
        job.overlay.ttl._states.clear()
        job.overlay._states.clear()
        job.cut()
        job.config = None
        job.crash()
        assert self.held(job.at(10**6)) == self.FILLED
