"""The cost of growing state: epochs, uploads, memory and recovery. `python -m bench.state`."""
