"""The key types declared by `key_by`. Keys are looked up by their bytes: a program that encodes them differently does
not find their state."""

from __future__ import annotations

import pickle

from penstock.checkpoint.manifest import NotRestorable
from penstock.graph.physical import PhysicalGraph
from penstock.state.serializers import serializer_for
from penstock.state.serializers.evolving import IncompatibleType, check_key
from penstock.state.serializers.schema_text import UnknownSchema, read_schema


def declared_key_types(graph: PhysicalGraph) -> dict[str, object]:
    """Return the declared key type of each keyed operator, by uid; operators without one are left out."""
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
    """Refuse a key type that encodes keys differently from the stored state. `stored` is empty if unknown."""
    serializer = serializer_for(declared)
    if not stored or stored == serializer.schema():
        return
    try:
        check_key(read_schema(f"value {stored}").value, serializer.node, ())
    except (IncompatibleType, UnknownSchema):
        raise NotRestorable(
            f"The state of operator {operator} in {where} is stored by keys of type '{stored}', but key_by now "
            f"declares '{serializer.schema()}'. Keys are looked up by their bytes, so none of it would be found.",
            fix="Declare the previous key_type, or change the uid of the operator to start without its state.",
        ) from None
