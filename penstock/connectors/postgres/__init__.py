"""PostgreSQL source and exactly-once sink. See docs/postgres.md for the guarantees."""
