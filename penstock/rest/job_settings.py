"""The settings of a job in a request to run it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.common.options import OPTIONS, canonical, without_effect
from penstock.common.options.service import DRIVER_MEMORY, DRIVER_MEMORY_OF_SPARK, SERVICE_PREFIXES, memory_of_spark
from penstock.rest.errors import BadRequest

_OF_A_CLUSTER = ("$internal.", "kubernetes.", "taskmanager.", "yarn.")
"""A client that sends one of these sends the settings of a whole cluster of Flink, as Flink's operator does."""
_OF_FLINK = (
    *_OF_A_CLUSTER,
    *SERVICE_PREFIXES,
    *("akka.", "blob.", "classloader.", "env.", "historyserver.", "internal.", "job.autoscaler.", "jobstore."),
    *("pekko.", "security."),
)
_OF_FLINKS_CLIENT = frozenset(
    {
        *("execution.attached", "execution.job-listeners", "execution.shutdown-on-application-finish"),
        *("execution.shutdown-on-attached-exit", "execution.submit-failed-job-on-application-error"),
        *("execution.target", "pipeline.classpaths", "pipeline.jars"),
    }
)
"""How Flink's client starts a job and with which Java classes."""

_log = logging.getLogger(__name__)


def settings_of_job(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a job, by their names in Penstock.

    Settings of the service would have no effect, so they raise BadRequest. Among the settings of a whole cluster of
    Flink, they are left out, with those of Flink's processes: the user cannot change what the client sends.
    """
    settings = canonical(given)
    memory = settings.pop(DRIVER_MEMORY.key, None)
    if memory is not None:
        settings.setdefault(
            DRIVER_MEMORY_OF_SPARK, memory_of_spark(DRIVER_MEMORY.type.parse(DRIVER_MEMORY.key, memory))
        )
    if any(key.startswith(_OF_A_CLUSTER) and key not in OPTIONS for key in settings):
        return _without_those_of_flink(settings)
    for key in settings:
        if key.startswith(SERVICE_PREFIXES) and not without_effect([key]):
            raise BadRequest(
                f"{key} is a setting of the service, so a job cannot set it.",
                fix="Put it into the configuration file of the service, or pass it to `penstock cluster start -D`.",
            )
    return settings


def _without_those_of_flink(settings: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in settings.items() if not _is_of_flink(key)}
    _log.info("A client sent %d settings of Flink that have no effect on a job.", len(settings) - len(kept))
    return kept


def _is_of_flink(key: str) -> bool:
    if key.startswith((*SERVICE_PREFIXES, "metrics.")) or key in _OF_FLINKS_CLIENT:
        return True
    return key.startswith(_OF_FLINK) and key not in OPTIONS
