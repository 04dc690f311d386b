"""The facts of a job on Spark that do not change while it runs."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from penstock.driver.checkpoint_settings import checkpoint_facts
from penstock.driver.job_observer import JobFacts
from penstock.driver.restarts import describe_strategy
from penstock.graph.plan_json import execution_plan
from penstock.spark.job_spec import JobSpec


def job_facts(spark: SparkSession, spec: JobSpec, job: str) -> JobFacts:
    """Return the facts of a job. `job` is its id."""
    root = spec.checkpoint_root
    return JobFacts(
        id=job,
        name=spec.name,
        attempt=0 if spec.assignment is None else spec.assignment.attempt,
        parallelism=spec.parallelism,
        batch=spec.single_epoch,
        application=str(spark.sparkContext.applicationId),
        plan=execution_plan(spec.logical, spec.physical, indent=None),
        checkpointing=checkpoint_facts(
            spec.settings, spec.interval_ms, spec.retain, None if root is None else root.where
        ),
        configuration=spec.configuration,
        parameters=spec.physical.job_parameters,
        arguments=sys.argv[1:],
        restart_strategy=describe_strategy(spec.restart_strategy),
        savepoint="" if spec.restore is None else spec.restore.path,
    )
