"""Answers about a process, from facts that the process collects on demand."""

from __future__ import annotations

from penstock.driver.process_facts import Environment, ThreadDump
from penstock.rest.contract import EnvironmentInfo, JVMInfo, ThreadDumpInfo, ThreadInfo


def environment_info(environment: Environment) -> EnvironmentInfo:
    """Answer `/jobmanager/environment` and `/jobs/:jobid/jobmanager/environment`."""
    versions = [each for each in (environment.jvm, environment.python) if each]
    return EnvironmentInfo(
        jvm=JVMInfo(version=", ".join(versions), arch=environment.architecture, options=environment.options),
        classpath=environment.classpath,
    )


def thread_dump_info(dump: ThreadDump) -> ThreadDumpInfo:
    """Answer `/jobmanager/thread-dump`."""
    return ThreadDumpInfo(
        thread_infos=[ThreadInfo(thread_name=each.name, stringified_thread_info=each.frames) for each in dump.threads]
    )
