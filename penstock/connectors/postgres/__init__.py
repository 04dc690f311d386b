"""PostgreSQL source and exactly-once sink. See docs/connect/postgres.md for the guarantees."""
