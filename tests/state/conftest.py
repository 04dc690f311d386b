"""Fixtures for jobs with TTL: every engine, and every kind of restore between their steps."""

import pytest
from ttl_job import BETWEEN, ENGINES, TtlJob


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(params=BETWEEN)
def between(request):
    """The action to run between every two steps."""
    return BETWEEN[request.param]


@pytest.fixture
def start(engine):
    jobs = []

    def start(config):
        jobs.append(TtlJob(engine, config))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()
