"""Credits follow what stages can do, and are shared by what waits: the controller alone, without clock and engine."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.driver.credits import FIRST, Controller, Demand, shared

TARGET = 1.0


class Job:
    """An epoch takes `overhead`, and in each stage so many seconds per record. The source always has more."""

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


def test_epochs_come_to_take_the_time_they_should():
    job = Job(read=1e-5, count=2e-5).run(10)
    assert 0.95 * TARGET <= job.took[-1] <= TARGET
    assert round(job.controller.capacity["count"]) == 50_000


def test_a_stage_that_becomes_ten_times_slower_has_fewer_credits_after_one_epoch():
    job = Job(overhead=0.2, read=1e-6, count=2e-5).run(10)
    before = job.controller.total
    job.stages["count"] *= 10
    job.run(1)
    assert job.took[-1] > 5 * TARGET
    assert job.controller.total < before / 5
    job.run(1)
    assert job.took[-1] <= 1.5 * TARGET


def test_a_stage_that_has_become_faster_has_more_credits_some_epochs_later():
    job = Job(count=2e-4).run(10)
    before = job.controller.total
    job.stages["count"] /= 10
    job.run(10)
    assert job.controller.total > 9 * before


def test_credits_grow_in_steps():
    job = Job(count=1e-9)
    steps = [job.run(1).controller.total for _ in range(3)]
    assert steps == [8 * FIRST, 64 * FIRST, 512 * FIRST]


def test_what_nobody_asks_for_does_not_grow():
    job = Job(count=1e-9).run(20, waiting=FIRST // 2 - 1)
    assert job.controller.total == FIRST


def test_in_quiet_times_credits_are_what_a_burst_may_have():
    job = Job(count=1e-3).run(5, waiting=100)
    assert 990 <= job.controller.total <= 1000
    assert job.run(1).took[-1] <= TARGET


def test_one_slow_epoch_is_forgotten_after_some():
    job = Job(count=2e-5).run(10)
    before = job.controller.total
    job.stages["count"] *= 5
    job.run(1)
    assert job.controller.total < before / 4
    job.stages["count"] /= 5
    job.run(6)
    assert job.controller.total > 0.8 * before


def test_an_epoch_without_records_says_nothing():
    job = Job(overhead=30.0, count=1e-3).run(5, waiting=0)
    assert job.controller.total == FIRST


def test_where_planning_takes_longer_than_an_epoch_should_records_still_flow():
    job = Job(overhead=0.5, target=0.1, count=1e-3).run(20)
    assert job.took[-1] <= 0.5 + 0.1
    assert job.controller.total >= 95


def test_stages_that_take_their_time_without_records_do_not_starve_those_there_are():
    """As on a machine that is busy with other things: fewer and fewer records would not make epochs shorter."""
    job = Job(overhead=0.5, count=1e-5)
    for _ in range(40):
        records = job.controller.total
        spent = 0.5 + 1e-5 * records
        job.controller.observe(records, 0, {"count": spent}, 0.5 + spent)
    assert job.controller.total > 10_000


def test_a_record_that_takes_longer_than_an_epoch_should_comes_alone():
    job = Job(count=7.0).run(10)
    assert job.controller.total == 1


def test_what_cannot_be_held_back_leaves_less_for_the_others():
    alone, beside = Job(count=1e-4).run(10), Job(count=1e-4).run(10, unheld=4000)
    assert abs(alone.controller.total - beside.controller.total - 4000) < 100


def test_what_cannot_be_held_back_does_not_starve_the_others():
    job = Job(count=1e-4).run(20, unheld=1_000_000)
    assert job.controller.total >= 500


epochs = st.lists(
    st.tuples(st.integers(0, 10**7), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100)), max_size=30
)


@given(epochs, st.floats(0.01, 100))
def test_credits_are_never_none_and_never_jump(epochs, target):
    controller = Controller(target)
    for records, first, second, more in epochs:
        before = controller.total
        controller.observe(records, records // 3, {"first": first, "second": second}, first + second + more)
        assert 1 <= controller.total <= 8 * before
        if records and first + second > 1.5 * target:
            assert controller.total <= before


@given(st.floats(-7, -3), st.floats(0, 0.4), st.floats(2, 50))
def test_whatever_records_cost_epochs_come_back_to_their_time(cost, overhead, slower):
    """Within three epochs, from any cost, given as a power of ten, to one that is higher."""
    job = Job(overhead=overhead, count=10**cost).run(40)
    job.stages["count"] *= slower
    job.run(3)
    assert job.took[-1] <= 1.5 * TARGET
    assert job.took[-1] >= 0.5 * TARGET


demands = st.builds(
    Demand, st.none() | st.integers(0, 10**9), granted=st.integers(0, 10**6), given=st.integers(0, 10**6)
)


@given(st.integers(1, 10**9), st.dictionaries(st.text(max_size=3), demands, min_size=1, max_size=9))
def test_all_credits_are_dealt_out_and_nobody_starves(total, demands):
    shares = shared(total, demands)
    assert shares.keys() == demands.keys()
    assert sum(shares.values()) == max(total, len(demands))
    assert min(shares.values()) >= max(1, total // (10 * len(demands)))


@given(st.integers(1, 10**9), st.dictionaries(st.text(max_size=3), demands, min_size=2, max_size=9))
def test_the_fuller_source_has_more_credits(total, demands):
    shares = shared(total, demands)
    for one in demands:
        for other in demands:
            if demands[one].expected > demands[other].expected:
                assert shares[one] >= shares[other]


def test_shares_follow_what_waits():
    shares = shared(1000, {"full": Demand(9000, 0, 0), "half": Demand(4500, 0, 0), "empty": Demand(0, 0, 0)})
    assert shares["empty"] == 33
    assert 1.8 < shares["full"] / shares["half"] < 2


def test_what_an_idle_source_does_not_need_is_for_the_others():
    shares = shared(1000, {"full": Demand(10**6, 0, 0), "idle": Demand(0, 0, 0)})
    assert shares == {"full": 950, "idle": 50}


def test_a_source_that_cannot_say_what_waits_may_give_twice_what_it_gave():
    full, other = Demand(None, granted=100, given=100), Demand(1000, 0, 0)
    assert full.expected == 200
    assert (full.pressure, other.pressure) == (1.0, 1.0)
    assert Demand(None, granted=100, given=30).pressure == 0.0
    assert Demand(300, granted=100, given=100).pressure == 0.75
    assert Demand(0, granted=100, given=100).pressure == 0.0
