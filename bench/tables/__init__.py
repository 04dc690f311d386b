"""What reading and writing state as tables takes. `python -m bench.tables`."""
