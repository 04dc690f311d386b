"""What sinks cost a job: files in two phases, and PostgreSQL."""
