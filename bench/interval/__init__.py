"""The cost of a checkpoint interval, and its effect on recovery. `python -m bench.interval`."""
