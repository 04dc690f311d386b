"""Tags of side outputs, as users import them."""

from penstock.runtime.output_tag import OutputTag

__all__ = ["OutputTag"]
