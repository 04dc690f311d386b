"""The limits of a 64-bit integer, which timestamps use as "never"."""

from penstock.absent import explain_absent

MAX_LONG_VALUE = 2**63 - 1
MIN_LONG_VALUE = -(2**63)

DEFAULT_OUTPUT_TAG = ""
"""The id of the main output."""

__all__ = ["DEFAULT_OUTPUT_TAG", "MAX_LONG_VALUE", "MIN_LONG_VALUE"]

explain_absent(__name__)
