"""Commands of other processes to a job: a Unix socket for each job that runs on this host, and those who ask at it.

Knows nothing of Spark or of what a job is. `driver/control_messages.py` has the requests and answers,
`driver/commands.py` answers them.
"""
