"""A stream used after `execute` joins the next program together with its inputs, and nothing else does."""

import json

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def executed(env):
    """Do what `execute` does to the environment, without Spark."""
    env._graph = env._graph.following()


def uids(env):
    return [node["uid"] for node in json.loads(env.get_execution_plan())["nodes"]]


def test_a_reused_stream_runs_again_without_other_streams(env):
    numbers = env.from_collection([1, 2, 3]).uid("numbers")
    numbers.map(lambda n: n + 1).uid("first").print()
    executed(env)
    with JobHarness(numbers.map(lambda n: n * 10).uid("second")) as job:
        assert job.run() == [10, 20, 30]
    assert uids(env)[:2] == ["numbers", "second"]
    assert "first" not in uids(env)


def test_a_union_and_a_keyed_stream_can_be_reused(env):
    left, right = env.from_collection([1, 2]).uid("left"), env.from_collection([3, 4]).uid("right")
    both = left.union(right)
    odd = both.key_by(lambda n: n % 2)
    executed(env)
    executed(env)
    with JobHarness(odd.sum().union(both.map(lambda n: -n))) as job:
        assert sorted(job.run()) == [-4, -3, -2, -1, 1, 2, 4, 6]


def test_streams_from_before_and_after_execute_can_be_merged(env):
    before = env.from_collection([1]).map(lambda n: n + 1)
    executed(env)
    after = env.from_collection([5])
    with JobHarness(before.union(after)) as job:
        assert sorted(job.run()) == [2, 5]


def test_renaming_an_operator_later_does_not_affect_the_previous_job(env):
    doubled = env.from_collection([1]).map(lambda n: 2 * n).name("double")
    first = env._graph
    executed(env)
    doubled.name("twice")
    assert [node.name for node in first.nodes.values()] == ["Collection", "double"]
    assert doubled.get_name() == "twice"
