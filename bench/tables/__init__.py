"""The cost of reading and writing state as tables. `python -m bench.tables`."""
