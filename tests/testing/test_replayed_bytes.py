"""A task replays what its own key groups changed, and hardly anything else."""

import pytest
from replayed_bytes import measure


@pytest.mark.parametrize(("parallelism", "most"), [(64, 128), (48, 1024)])
def test_a_task_replays_little_more_than_its_own_key_groups_changed(parallelism: int, most: int) -> None:
    for each in measure(parallelism, most, epochs=2, keys=20 * most):
        assert 0 < each.changed <= each.replayed <= 1.2 * each.changed
        assert each.replicas <= 7


@pytest.mark.parametrize(("parallelism", "replicas"), [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1), (64, 1)])
def test_a_task_opens_only_the_replicas_of_its_key_groups(parallelism: int, replicas: int) -> None:
    assert {each.replicas for each in measure(parallelism, 128, epochs=1, keys=2000)} == {replicas}
