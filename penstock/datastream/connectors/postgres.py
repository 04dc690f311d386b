"""The PostgreSQL source and sink."""

from penstock.connectors.postgres.sink import PostgresSink
from penstock.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSink", "PostgresSource"]
