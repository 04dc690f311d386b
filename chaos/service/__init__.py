"""Dispatchers in their own processes, and the faults of a whole service: `python -m chaos --service`."""
