"""Removal of savepoints, on request of clients."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from penstock.common.options import store_options
from penstock.driver.control_messages import Done
from penstock.driver.operations import Operations
from penstock.savepoint.format import dispose_savepoint, savepoint_storage


def trigger_disposal(operations: Operations, path: str, settings: Mapping[str, str], trigger_id: str) -> str:
    """Begin to remove a savepoint, and return the id of the operation: the given one, or a new one if it is empty."""

    def dispose() -> Done:
        dispose_savepoint(savepoint_storage(path, store_options(settings)))
        return Done()

    return operations.trigger(trigger_id or secrets.token_hex(16), dispose).trigger_id
