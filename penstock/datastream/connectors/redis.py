"""The Redis source, which reads streams, and the Redis sink, which writes keys."""

from penstock.connectors.redis.entries import RedisEntry, json_field
from penstock.connectors.redis.redis_sink import RedisSink
from penstock.connectors.redis.stream_source import RedisStreamSource

__all__ = ["RedisEntry", "RedisSink", "RedisStreamSource", "json_field"]
