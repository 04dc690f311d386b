"""Credits follow the speed of stages and are split by backlog: the controller alone, without a clock or an engine."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.driver.credits import FIRST, Controller, Demand, shared

TARGET = 1.0


class Job:
    """An epoch takes `overhead` plus each stage's seconds per record. The source always has more records."""

    def __init__(self, overhead=0.0, target=TARGET, **stages):
        self.controller = Controller(target)
        self.overhead, self.stages = overhead, stages
        self.took = []

    def run(self, epochs, waiting=10**12, unheld=0):
        for _ in range(epochs):
            records = min(self.controller.total, waiting) + unheld
            times = {name: cost * records for name, cost in self.stages.items()}
            self.took.append(self.overhead + sum(times.values()))
            self.controller.observe(records, unheld, times, self.took[-1])
        return self


def test_epochs_converge_to_the_target_duration():
    job = Job(read=1e-5, count=2e-5).run(10)
    assert 0.95 * TARGET <= job.took[-1] <= TARGET
    assert round(job.controller.capacity["count"]) == 50_000


def test_credits_fall_one_epoch_after_a_stage_becomes_ten_times_slower():
    job = Job(overhead=0.2, read=1e-6, count=2e-5).run(10)
    before = job.controller.total
    job.stages["count"] *= 10
    job.run(1)
    assert job.took[-1] > 5 * TARGET
    assert job.controller.total < before / 5
    job.run(1)
    assert job.took[-1] <= 1.5 * TARGET


def test_credits_rise_some_epochs_after_a_stage_becomes_faster():
    job = Job(count=2e-4).run(10)
    before = job.controller.total
    job.stages["count"] /= 10
    job.run(10)
    assert job.controller.total > 9 * before


def test_credits_grow_in_steps():
    job = Job(count=1e-9)
    steps = [job.run(1).controller.total for _ in range(3)]
    assert steps == [8 * FIRST, 64 * FIRST, 512 * FIRST]


def test_unused_credits_do_not_grow():
    job = Job(count=1e-9).run(20, waiting=FIRST // 2 - 1)
    assert job.controller.total == FIRST


def test_credits_stay_sized_for_a_burst_while_little_arrives():
    job = Job(count=1e-3).run(5, waiting=100)
    assert 990 <= job.controller.total <= 1000
    assert job.run(1).took[-1] <= TARGET


def test_credits_recover_after_one_slow_epoch():
    job = Job(count=2e-5).run(10)
    before = job.controller.total
    job.stages["count"] *= 5
    job.run(1)
    assert job.controller.total < before / 4
    job.stages["count"] /= 5
    job.run(6)
    assert job.controller.total > 0.8 * before


def test_an_epoch_without_records_does_not_change_credits():
    job = Job(overhead=30.0, count=1e-3).run(5, waiting=0)
    assert job.controller.total == FIRST


def test_records_still_flow_if_planning_takes_longer_than_the_target():
    job = Job(overhead=0.5, target=0.1, count=1e-3).run(20)
    assert job.took[-1] <= 0.5 + 0.1
    assert job.controller.total >= 95


def test_a_fixed_stage_time_does_not_starve_the_sources():
    """On a machine that is busy with other work, ever fewer records would not make epochs shorter."""
    job = Job(overhead=0.5, count=1e-5)
    for _ in range(40):
        records = job.controller.total
        spent = 0.5 + 1e-5 * records
        job.controller.observe(records, 0, {"count": spent}, 0.5 + spent)
    assert job.controller.total > 10_000


def test_a_record_slower_than_the_target_gets_an_epoch_alone():
    job = Job(count=7.0).run(10)
    assert job.controller.total == 1


def test_unlimited_sources_reduce_the_credits_of_the_others():
    alone, with_unlimited = Job(count=1e-4).run(10), Job(count=1e-4).run(10, unheld=4000)
    assert abs(alone.controller.total - with_unlimited.controller.total - 4000) < 100


def test_unlimited_sources_do_not_starve_the_others():
    job = Job(count=1e-4).run(20, unheld=1_000_000)
    assert job.controller.total >= 500


epochs = st.lists(
    st.tuples(st.integers(0, 10**7), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100)), max_size=30
)


@given(epochs, st.floats(0.01, 100))
def test_credits_never_reach_zero_and_never_jump(epochs, target):
    controller = Controller(target)
    for records, first, second, more in epochs:
        before = controller.total
        controller.observe(records, records // 3, {"first": first, "second": second}, first + second + more)
        assert 1 <= controller.total <= 8 * before
        if records and first + second > 1.5 * target:
            assert controller.total <= before


@given(st.floats(-7, -3), st.floats(0, 0.4), st.floats(2, 50))
def test_epochs_return_to_the_target_at_any_record_cost(cost, overhead, slower):
    """Epochs are back on target within three epochs of any rise of the cost, which is given as a power of ten."""
    job = Job(overhead=overhead, count=10**cost).run(40)
    job.stages["count"] *= slower
    job.run(3)
    assert job.took[-1] <= 1.5 * TARGET
    assert job.took[-1] >= 0.5 * TARGET


demands = st.builds(
    Demand, st.none() | st.integers(0, 10**9), granted=st.integers(0, 10**6), given=st.integers(0, 10**6)
)


@given(st.integers(1, 10**9), st.dictionaries(st.text(max_size=3), demands, min_size=1, max_size=9))
def test_all_credits_are_granted_and_no_source_starves(total, demands):
    shares = shared(total, demands)
    assert shares.keys() == demands.keys()
    assert sum(shares.values()) == max(total, len(demands))
    assert min(shares.values()) >= max(1, total // (10 * len(demands)))


@given(st.integers(1, 10**9), st.dictionaries(st.text(max_size=3), demands, min_size=2, max_size=9))
def test_a_source_with_a_larger_backlog_gets_more_credits(total, demands):
    shares = shared(total, demands)
    for one in demands:
        for other in demands:
            if demands[one].expected > demands[other].expected:
                assert shares[one] >= shares[other]


def test_shares_follow_the_backlogs():
    shares = shared(1000, {"full": Demand(9000, 0, 0), "half": Demand(4500, 0, 0), "empty": Demand(0, 0, 0)})
    assert shares["empty"] == 33
    assert 1.8 < shares["full"] / shares["half"] < 2


def test_unneeded_credits_of_an_idle_source_go_to_the_others():
    shares = shared(1000, {"full": Demand(10**6, 0, 0), "idle": Demand(0, 0, 0)})
    assert shares == {"full": 950, "idle": 50}


def test_a_source_without_a_backlog_is_expected_to_double():
    full, other = Demand(None, granted=100, given=100), Demand(1000, 0, 0)
    assert full.expected == 200
    assert (full.pressure, other.pressure) == (1.0, 1.0)
    assert Demand(None, granted=100, given=30).pressure == 0.0
    assert Demand(300, granted=100, given=100).pressure == 0.75
    assert Demand(0, granted=100, given=100).pressure == 0.0
