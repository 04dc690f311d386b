"""PostgreSQL as a source and as an exactly-once sink. docs/connect/postgres.md has what holds."""
