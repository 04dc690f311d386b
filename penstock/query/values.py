"""Decode what a read returns, in the client. No pickle is loaded unless the caller asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.query.errors import WrongKind
from penstock.query.stored import VALUES, Parts
from penstock.state.descriptors import AggregatingStateDescriptor, MapStateDescriptor, StateDescriptor
from penstock.state.keyed_collections import map_key_codec
from penstock.state.serializers import Serializer
from penstock.state.serializers.leaves import BYTES, Pickled
from penstock.state.serializers.node import TypeNode
from penstock.tables.layouts import map_key_decoder, read_bytes, value_decoder
from penstock.tables.plain_text import plain_of_part, plain_of_stored
from penstock.tables.schemas import state_type
from penstock.tables.shapes import Shape

_NATIVE = frozenset({"decimal", "time", "uuid", "timestamp"})
"""Types whose own classes are returned, although tables show them as text."""

_HINTED = " or any"
"""Ends the types of states whose type comes from an annotation: values of other types are stored as well."""

Decode = Callable[[bytes], Any]


class PickledValue(PenstockError):
    """A value is a pickle, which can run code when it is loaded.

    Operator action: declare a type for the state. If you trust the job as much as your own program, pass
    ``allow_pickle=True``.
    """


class Values:
    """Decodes the values of one state as plain Python objects: a dataclass as a dict, a pickle as its bytes."""

    def __init__(self, kind: str, text: str) -> None:
        """`kind` and `text`: the kind and stored type of the state."""
        self.kind = kind
        found = state_type(f"{kind} {text}")
        self._value = _plain_decoder(found.value, bool(found.other))
        self._map_key: Decode | None = None if found.key is None else map_key_decoder(found.key)

    def decode(self, parts: Parts) -> Any:
        """Return a value, a list or a dict."""
        if self.kind in VALUES:
            return self.value(parts[0][1])
        if self.kind == "list":
            return [self.value(data) for _, data in parts]
        return dict(self.entry(*part) for part in parts)

    def entry(self, map_key: bytes, data: bytes) -> tuple[Any, Any]:
        """Return an entry of a map."""
        return self.map_key(map_key), self.value(data)

    def map_key(self, data: bytes) -> Any:
        """Return a key of a map."""
        if self._map_key is None:
            raise WrongKind(f"A state of kind {self.kind} has no map keys.", fix="Read it with get().")
        return self._map_key(data)

    def value(self, data: bytes) -> Any:
        """Return one value."""
        return self._value(data)


class DescribedValues(Values):
    """Decodes the values of one state as its job does, by a descriptor."""

    def __init__(self, kind: str, text: str, descriptor: StateDescriptor, allow_pickle: bool = False) -> None:
        """Raises WrongKind, PickledValue."""
        super().__init__(kind, text)
        self._hinted = text.endswith(_HINTED)
        if descriptor.schema() != f"{kind} {text.removesuffix(_HINTED)}":
            raise WrongKind(
                f"The descriptor declares '{descriptor.schema()}', but the state is '{kind} {text}'.",
                fix="Pass the descriptor that the job uses, or none.",
            )
        serializers: list[Serializer] = [descriptor.serializer]
        if isinstance(descriptor, MapStateDescriptor):
            serializers.append(descriptor.key_serializer)
            self._map_key = map_key_codec(descriptor)[1]
        if text == "any" and not allow_pickle:
            # Plain values need no pickle, and a pickle stays bytes.
            serializers = []
        if not allow_pickle and any(_loads_pickles(each.node) for each in serializers):
            raise PickledValue(
                f"Values of '{kind} {text}' are pickles, which can run code when they are loaded.",
                fix="Pass allow_pickle=True if you trust the job as much as your own program, or no descriptor.",
            )
        if serializers:
            self._value = descriptor.serializer.decode
        self._result: Callable[[Any], Any] | None = None
        if isinstance(descriptor, AggregatingStateDescriptor):
            self._result = descriptor.get_agg_function().get_result

    def value(self, data: bytes) -> Any:
        """Return one value; of an aggregating state the result."""
        value = plain_of_part(read_bytes(data)) if self._hinted and data[0] in BYTES else self._value(data)
        return value if self._result is None else self._result(value)


def _loads_pickles(node: TypeNode) -> bool:
    return isinstance(node, Pickled) or any(map(_loads_pickles, node.parts))


def _plain_decoder(shape: Shape, other: bool) -> Decode:
    decode = plain_of_stored if shape.text == "any" else _of_shape(shape)
    if not other:
        return decode
    # A value that does not fit its hint is a pickle, or plain in bytes.
    return lambda data: plain_of_part(read_bytes(data)) if data[0] in BYTES else decode(data)


def _of_shape(shape: Shape) -> Decode:
    if shape.text.removesuffix("?") in _NATIVE:
        native: Decode = msgspec.msgpack.Decoder(shape.wire).decode
        return native
    return value_decoder(shape)
