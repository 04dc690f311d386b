"""Pickles with classes by value stay readable: values stored by earlier versions are such pickles."""

from __future__ import annotations

import pickle
from functools import cached_property

import msgspec

from penstock.common.class_pickling import dump_by_name

# The output of dump_by_name for Order(7, ["a"]), a struct defined in a function.
STORED_STRUCT = (
    b"\x80\x05\x95\x7f\x02\x00\x00\x00\x00\x00\x00\x8c\x17penstock.common.program\x94\x8c\x0c_make_struct\x94\x93\x94("
    b"\x8c\rmsgspec._core\x94\x8c\nStructMeta\x94\x93\x94\x8c\x05Order\x94\x8c\x07msgspec\x94\x8c\x06Struct\x94\x93\x94"
    b"\x85\x94}\x94(\x8c\x07__doc__\x94N\x8c\n__module__\x94\x8c\x04shop\x94\x8c\x0c__qualname__\x94\x8c\x14"
    b"local.<locals>.Order\x94u]\x94(\x8c\x08order_id\x94\x8c\x05items\x94e}\x94}\x94h\x13\x8c\x08builtins\x94\x8c\x04"
    b"list\x94\x93\x94s}\x94(\x8c\narray_like\x94\x89\x8c\ncache_hash\x94\x89\x8c\x04dict\x94\x89\x8c\x02eq\x94\x88"
    b"\x8c\x15forbid_unknown_fields\x94\x89\x8c\x06frozen\x94\x88\x8c\x02gc\x94\x88\x8c\romit_defaults\x94\x89"
    b"\x8c\x05order\x94\x89\x8c\x12repr_omit_defaults\x94\x89\x8c\ttag_field\x94N\x8c\x07weakref\x94\x89\x8c\x03tag\x94"
    b"\x89\x8c\x06rename\x94}\x94(h\x12\x8c\x07orderId\x94h\x13h\x13u\x8c\x07kw_only\x94\x89u\x8c "
    b"2c89a78d94ca465280d3cdb08b881545\x94t\x94R\x94h\x00\x8c\x0f_set_attributes\x94\x93\x94h-}\x94("
    b"\x8c\x0f__annotations__\x94}\x94(h\x12h\x16\x8c\x03int\x94\x93\x94h\x13\x8c\x17cloudpickle.cloudpickle\x94"
    b"\x8c\r_builtin_type\x94\x93\x94\x8c\x0cGenericAlias\x94\x85\x94R\x94h\x18h\x16\x8c\x03str\x94\x93\x94\x85\x94\x86"
    b"\x94R\x94uh\x0cNu\x86R0K\x07]\x94\x8c\x01a\x94a\x86\x94R\x94."
)


def test_a_struct_stored_by_an_earlier_version_can_be_read() -> None:
    order = pickle.loads(STORED_STRUCT)
    assert (type(order).__name__, order.order_id, order.items) == ("Order", 7, ["a"])
    assert msgspec.json.encode(order) == b'{"orderId":7,"items":["a"]}'


def test_functions_called_by_stored_pickles_keep_their_names() -> None:
    class Order(msgspec.Struct):
        number: int

    class Cart:
        @cached_property
        def total(self) -> int:
            return 1

    names = [b"\x17penstock.common.program\x94", b"_make_struct", b"_set_attributes", b"_make_cached_property"]
    Order.__module__ = Cart.__module__ = "shop"
    data = dump_by_name((Order(1), Cart()))
    assert [name for name in names if name not in data] == []
    assert b"penstock.common.class_pickling" not in data
