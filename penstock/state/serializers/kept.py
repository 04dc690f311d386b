"""A fast test that accepts a record without checking its fields one by one in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.serializers.leaves import LONG_MAX, LONG_MIN
from penstock.state.serializers.node import TypeNode

__all__ = ["kept_test"]


def kept_test(nodes: Sequence[TypeNode], places: Sequence[str], attributes: int | None = None) -> Callable[[Any], bool]:
    """Return a function that tests whether `check` would keep a record `v` and all its fields unchanged.

    If the function returns False, or a field's check raises, the caller checks field by field to find the change or the
    location of the error.

    The function is compiled, as in dataclasses, because it runs for every stored value: 80 ns for three plain fields,
    where the shortest loop takes 270 (CPython 3.11).

    Args:
        nodes: The types of the fields.
        places: The expressions for the fields, such as `v.id` or `v[0]`.
        attributes: How many fields are in the `__dict__` of a record, if it has one. Any other attributes would be
            lost.
    """
    names: dict[str, Any] = {"low": LONG_MIN, "high": LONG_MAX}
    terms = [] if attributes is None else [f"len(v.__dict__) == {attributes}"]
    for i, (node, place) in enumerate(zip(nodes, places)):
        if node.exact is int:
            terms.append(f"type(x := {place}) is int and low <= x <= high")
        elif node.exact is not None:
            names[f"class{i}"] = node.exact
            terms.append(f"type({place}) is class{i}")
        elif type(node).fits is not TypeNode.fits:
            names[f"fits{i}"] = node.fits
            terms.append(f"fits{i}({place})")
        else:
            names[f"check{i}"] = node.check
            terms.append(f"check{i}(x := {place}) is x")
    exec(f"def kept(v):\n    return {' and '.join(terms) or True}", names)
    return names["kept"]  # type: ignore[no-any-return]
