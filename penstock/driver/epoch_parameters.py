"""The parameters that the driver passes to the tasks of one epoch."""

from __future__ import annotations

import msgspec

from penstock.checkpoint.manifest import Version
from penstock.driver.rescaling import Scale
from penstock.state.backends import Backend
from penstock.state.blocks import Blocks
from penstock.state.overlay import OVERLAY_BYTES


class EpochParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the driver passes to the tasks of one epoch."""

    number: int
    ends_input: bool
    wanted: Version | None
    storage: str
    lineage: str
    backend: Backend
    inline_bytes: int
    timestamp: int = 0
    """Processing time of the epoch, in milliseconds."""
    overlay_bytes: int = OVERLAY_BYTES
    scale: Scale = {}
    single_epoch: bool = False
    """Whether this epoch is the entire job, so its state is discarded."""
    token: str = ""
    """Token of the driver that runs the epoch."""
    blocks: dict[str, Blocks] = {}
    """The blocks of keyed operators, by uid."""
    jumped: int = 0
    """Milliseconds by which the clock jumped forward since the previous epoch. Channels were not idle for that time."""
