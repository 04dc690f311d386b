"""The types that `key_by` declares. A key is found by its bytes, so state is lost to a program that writes others."""

from __future__ import annotations

import pickle

from penstock.checkpoint.manifest import NotRestorable
from penstock.graph.physical import PhysicalGraph
from penstock.state.serializers import serializer_for
from penstock.state.serializers.evolving import IncompatibleType, check_key
from penstock.state.serializers.schema_text import UnknownSchema, read_schema


def declared_key_types(graph: PhysicalGraph) -> dict[str, object]:
    """By uid of each keyed operator, the type of its keys, if the program says one."""
    found: dict[str, object] = {}
    for chain in graph.chains:
        edges = [graph.edges[number] for number in chain.inputs]
        keys = [pickle.loads(edge.pickled_key)[1] for edge in edges if edge.kind == "key" and edge.pickled_key]
        types = [key for key in keys if key is not None]
        if types and all(serializer_for(kind).schema() == serializer_for(types[0]).schema() for kind in types):
            found[chain.operators[0].uid] = types[0]
    return found


def key_type_text(declared: object) -> str:
    return serializer_for(declared).schema()


def check_key_type(declared: object, stored: str, operator: str, where: str) -> None:
    """Refuse keys whose bytes would be others than those that state is stored by. `stored`: empty where unknown."""
    serializer = serializer_for(declared)
    if not stored or stored == serializer.schema():
        return
    try:
        check_key(read_schema(f"value {stored}").value, serializer.node, ())
    except (IncompatibleType, UnknownSchema):
        raise NotRestorable(
            f"What {where} has of operator {operator} is stored by keys of type '{stored}', and key_by declares "
            f"'{serializer.schema()}' now. Keys are found by their bytes, so none of it would be found.",
            fix="Declare key_type as it was, or give the operator another uid to start without its state.",
        ) from None
