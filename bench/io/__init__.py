"""The cost of sinks: files with two-phase commits, and PostgreSQL."""
