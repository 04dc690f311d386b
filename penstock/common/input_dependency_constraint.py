"""Flink's constraint on scheduling, which has no effect here."""

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """When Flink would schedule a task with several inputs. Spark schedules the stages one after the other."""

    ANY = 0
    ALL = 1
