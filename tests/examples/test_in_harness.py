"""Every example in process, in one epoch and record by record."""

from typing import Any

import pytest
from example_cases import CASES, load_example

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def run(name: str, records: list[Any] | None = None, per_epoch: int | None = None, **options: Any) -> list[Any]:
    example = load_example(name)
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = example.build(env.from_collection(example.SAMPLE if records is None else records))
    with JobHarness(stream, **options) as job:
        return job.run(per_epoch)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("per_epoch", [None, 1], ids=["one epoch", "an epoch each"])
def test_an_example_produces_its_documented_output(name: str, per_epoch: int | None) -> None:
    assert sorted(run(name, per_epoch=per_epoch, parallelism=2)) == sorted(CASES[name])


def test_a_finished_session_of_the_state_machine_starts_over() -> None:
    """After g the state is cleared, so a is valid again. After an alert the state stays."""
    events = [("s", event) for event in "aabeggca"]
    alerts = [("s", "W", "a"), ("s", "Initial", "g"), ("s", "X", "a")]
    assert run("state_machine", events) == alerts


def test_the_online_model_learns_the_line() -> None:
    errors = [abs(error) for _, _, error in run("online_model", per_epoch=50)]
    assert sum(errors[-10:]) < 0.1 * sum(errors[:10])


def test_a_pattern_is_forgotten_after_a_payment_in_between() -> None:
    payments = [("c", 0.5), ("c", 0.5), ("c", 40.0), ("c", 0.5), ("c", 900.0)]
    assert run("event_pattern", payments, per_epoch=1) == []


def test_pending_totals_survive_crashes_and_rescaling() -> None:
    example = load_example("sales_by_period")
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(example.build(env.from_collection(example.SAMPLE)), parallelism=2) as job:
        while job.epoch(1) is not None and job.backlog():
            job.crash()
            job.rescale(1 + job.checkpoint % 3)
        assert sorted(job.end().output) == sorted(CASES["sales_by_period"])


@pytest.mark.parametrize("order", ["orders first", "rules first", "announcement last"])
@pytest.mark.parametrize("per_epoch", [None, 1, 3])
def test_orders_wait_for_the_complete_set_of_rules(order: str, per_epoch: int | None) -> None:
    example = load_example("rules_first")
    kinds = {"orders first": ("order", "rules", "rule"), "rules first": ("rules", "rule", "order")}
    of = kinds.get(order, ("rule", "order", "rules"))
    events = sorted(example.SAMPLE, key=lambda event: of.index(event[0]))
    with JobHarness(
        example.build(StreamExecutionEnvironment.get_execution_environment().from_collection(events)), parallelism=2
    ) as job:
        if per_epoch is not None:
            while job.backlog():
                job.epoch(per_epoch)
                job.crash()
        assert sorted(job.run()) == sorted(CASES["rules_first"])


def test_an_incomplete_set_of_rules_checks_no_order() -> None:
    assert run("rules_first", [("rules", "", 2), ("rule", "de", 100), ("order", "de", 120)], per_epoch=1) == []
