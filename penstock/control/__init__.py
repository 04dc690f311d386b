"""Commands from other processes to a job: one Unix socket per job on this host, and the client.

This package is independent of Spark and of jobs. `driver/control_messages.py` defines requests and answers, and
`driver/commands.py` executes them.
"""
