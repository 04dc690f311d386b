"""Settings of a program's execution, as an object: another view of the environment's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment

_AUTO_UIDS = "pipeline.auto-generate-uids"


class ExecutionConfig:
    """Given by `env.get_config()`. What is set here is set in the environment."""

    PARALLELISM_DEFAULT = -1
    """Given to `set_parallelism`: as many subtasks as Spark has cores."""
    PARALLELISM_UNKNOWN = -2
    """Given to `set_parallelism`: leave it as it is."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env

    def get_parallelism(self) -> int:
        return self._env.get_parallelism()

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        if parallelism == self.PARALLELISM_DEFAULT:
            self._env.get_configuration().remove_config("parallelism.default")
        elif parallelism != self.PARALLELISM_UNKNOWN:
            self._env.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        return self._env.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        self._env.set_max_parallelism(max_parallelism)
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        self._env.get_configuration().set_boolean(_AUTO_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse to run a program with an operator that has no uid."""
        self._env.get_configuration().set_boolean(_AUTO_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._env.get_configuration().get_boolean(_AUTO_UIDS, True)

    def get_global_job_parameters(self) -> dict[str, str]:
        return dict(self._env._job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """What functions read with `RuntimeContext.get_job_parameter`; replaces what was set before."""
        self._env._job_parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self


__all__ = ["ExecutionConfig"]
