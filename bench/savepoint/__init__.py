"""What savepoints and rescaling cost a running job. `python -m bench.savepoint`."""
