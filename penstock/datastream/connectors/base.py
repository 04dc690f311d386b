"""What connectors share."""

from __future__ import annotations

from enum import Enum

from penstock.absent import explain_absent
from penstock.connectors.sink import Sink
from penstock.connectors.source import Source


class DeliveryGuarantee(Enum):
    """How often a record reaches the system behind a sink, whatever fails."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


__all__ = ["DeliveryGuarantee", "Sink", "Source"]

explain_absent(__name__)
