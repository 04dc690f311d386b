"""JSON messages as Rows, under PyFlink's names."""

from penstock.absent import explain_absent
from penstock.common.json_messages import JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

explain_absent(__name__)
