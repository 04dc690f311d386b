"""What a checkpoint interval costs, and what it saves when the job dies. `python -m bench.interval`."""
