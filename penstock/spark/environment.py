"""The environment of a driver process and of its JVM."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.common.masking import masked_setting, masked_text
from penstock.driver.process_facts import Environment, python_environment


def spark_environment(spark: SparkSession) -> Environment:
    """Return versions, options and paths. Values of options that could contain a secret are masked."""
    jvm: Any = spark.sparkContext._jvm
    system = jvm.java.lang.System
    version = f"{system.getProperty('java.vm.name')} {system.getProperty('java.version')}"
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    python = python_environment()
    return replace(
        python,
        jvm=f"{version} (Spark {spark.version})",
        options=[_masked(str(each)) for each in arguments],
        classpath=[*python.classpath, *str(system.getProperty("java.class.path")).split(":")],
    )


def _masked(argument: str) -> str:
    key, equals, value = argument.partition("=")
    return f"{key}={masked_setting(key.removeprefix('-D'), value)}" if equals else masked_text(argument)
