"""PostgreSQL as users import it."""

from penstock.connectors.postgres.source import PostgresSource

__all__ = ["PostgresSource"]
