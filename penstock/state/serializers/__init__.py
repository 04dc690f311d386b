"""Values to bytes and back: one registry behind `Types` and type hints.

serializer_for   serializer.py   the registry, and what a Serializer promises
TypeNode         node.py         what each part of a type can do
                 leaves.py, containers.py, records.py: the parts
                 hints.py, types.py: from a declaration to its parts
                 codec.py: msgpack
Hinted           hinted.py       types that come from annotations
Versions         migrations.py   stored values of types that have changed since
                 schema_text.py, evolving.py: from what a type was to what it is declared as
"""

from penstock.state.serializers.hinted import Hinted, OrPickled, holds_itself
from penstock.state.serializers.node import NotEncodable, UnsupportedType
from penstock.state.serializers.serializer import Serializer, serializer_for

__all__ = ["Hinted", "NotEncodable", "OrPickled", "Serializer", "UnsupportedType", "holds_itself", "serializer_for"]
