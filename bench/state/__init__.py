"""What state costs as it grows: epochs, uploads, memory and recoveries. `python -m bench.state`."""
