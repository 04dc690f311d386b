"""The cost of savepoints and rescaling for a running job. `python -m bench.savepoint`."""
