"""Conversion of values to bytes and back: one registry behind `Types` and type hints.

serializer_for   serializer.py   the registry, and the contract of a Serializer
TypeNode         node.py         the interface of each part of a type
                 leaves.py, containers.py, records.py: the kinds of parts
                 hints.py, types.py: convert a declaration to parts
                 codec.py: msgpack
Hinted           hinted.py       types derived from annotations
Versions         migrations.py   read stored values whose type has changed since
                 schema_text.py, evolving.py: plan a migration from the stored type to the declared one
"""

from penstock.state.serializers.hinted import Hinted, OrPickled, holds_itself
from penstock.state.serializers.node import NotEncodable, UnsupportedType
from penstock.state.serializers.serializer import Serializer, serializer_for

__all__ = ["Hinted", "NotEncodable", "OrPickled", "Serializer", "UnsupportedType", "holds_itself", "serializer_for"]
