"""How often records reach the system behind a sink."""

from enum import Enum


class DeliveryGuarantee(Enum):
    """How often a record reaches the system behind a sink, whatever fails."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2
