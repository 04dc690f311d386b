"""What the driver tells the tasks of one epoch."""

from __future__ import annotations

import msgspec

from penstock.checkpoint.manifest import Version
from penstock.driver.rescaling import Scale
from penstock.state.backends import Backend
from penstock.state.overlay import OVERLAY_BYTES


class EpochParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver tells the tasks of one epoch."""

    number: int
    ends_input: bool
    wanted: Version | None
    storage: str
    lineage: str
    backend: Backend
    inline_bytes: int
    timestamp: int = 0
    """The epoch's clock, in milliseconds."""
    overlay_bytes: int = OVERLAY_BYTES
    scale: Scale = {}
    single_epoch: bool = False
    """Whether the epoch is the whole job, so that nothing of its state is kept."""
    token: str = ""
    """Of the driver that runs the epoch."""
    jumped: int = 0
    """By how many milliseconds the clock jumped forward since the epoch before; no channel was silent for them."""
