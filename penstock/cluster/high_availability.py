"""The coordination that the settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.coordination import Coordination, NoCoordination
from penstock.cluster.records import Records
from penstock.cluster.zookeeper import ZooKeeperCoordination
from penstock.cluster.zookeeper_client import ZooKeeperSettings
from penstock.common.options.service import HA_STORAGE, HA_TYPE
from penstock.common.setting_types import BadSetting


def coordination_of(settings: Mapping[str, str], storage: SharedStorage) -> Coordination:
    """Return the coordination of a Dispatcher, not started. `storage` holds the records of the cluster."""
    if HA_TYPE.read(settings) == "none":
        return NoCoordination(Records(storage))
    if not HA_STORAGE.read(settings):
        raise BadSetting(
            f"{HA_STORAGE.key} is not set, and {HA_TYPE.key} is zookeeper.",
            fix="Set it to a directory or URI that all Dispatchers of the cluster can reach.",
        )
    return ZooKeeperCoordination(ZooKeeperSettings.read(settings, storage))
