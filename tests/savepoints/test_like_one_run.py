"""Jobs saved and restored at random, at any parallelism and backend, with crashes, match an uninterrupted run."""

import shutil
import tempfile
from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from savepoint_jobs import Remember, Sum, by_first, environment, numbers

from penstock.savepoint.restoring import RecoveryClaimMode
from penstock.testing import JobHarness

RECORDS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=15)
RUNS = st.lists(
    st.tuples(
        st.integers(1, 16),
        st.sampled_from(["memory", "filesystem"]),
        st.booleans(),
        st.sampled_from(RecoveryClaimMode),
        st.lists(st.tuples(RECORDS, st.sampled_from(["go on", "crash", "lose replicas"])), max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def program(swapped):
    """Two parallel operators, declared in either order: each must keep its own state."""
    pairs = by_first(numbers(environment()))
    add_sum, add_rest = (lambda: pairs.process(Sum()).uid("sum")), (lambda: pairs.process(Remember()).uid("remember"))
    if swapped:
        rest, total = add_rest(), add_sum()
    else:
        total, rest = add_sum(), add_rest()
    return total.union(rest)


@settings(max_examples=8, deadline=None)
@given(runs=RUNS)
def test_a_saved_and_restored_job_has_the_state_of_one_run(runs):
    directory = tempfile.mkdtemp()
    sums, lists, path = Counter(), defaultdict(list), None
    try:
        for parallelism, backend, swapped, claim_mode, epochs in runs:
            job = JobHarness(
                program(swapped),
                parallelism=parallelism,
                max_parallelism=16,
                backend=backend,
                from_savepoint=path,
                claim_mode=claim_mode,
            )
            for records, then in epochs:
                job.push(*records).epoch()
                for key, value in records:
                    sums[key] += value
                    lists[key].append(value)
                if then == "lose replicas":
                    job.lose_replicas()
                if then != "go on":
                    job.crash()
            assert job.states("sum") == sums
            assert job.states("values") == lists
            assert job.states("seen") == {key: Counter(values) for key, values in lists.items()}
            path = job.stop_with_savepoint(directory)
    finally:
        shutil.rmtree(directory)
