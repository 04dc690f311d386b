"""Delivery guarantees of a sink."""

from enum import Enum


class DeliveryGuarantee(Enum):
    """How often a sink writes each record to the external system if the job fails and recovers."""

    EXACTLY_ONCE = 0
    """Each record appears once, even after a recovery."""
    AT_LEAST_ONCE = 1
    """No record is lost, but a recovery can write some records twice."""
    NONE = 2
    """Records can be lost or written twice."""
