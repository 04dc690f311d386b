"""The service around jobs: durable records, supervision, and the processes that run programs."""
