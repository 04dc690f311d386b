"""PostgreSQL as a source and as an exactly-once sink. docs/postgres.md has what holds."""
