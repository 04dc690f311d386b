"""Reads the state of a running job through the proxy while its processes are killed: `python -m chaos.query`."""
