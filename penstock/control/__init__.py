"""Commands of other processes to a job: a Unix socket for each job that runs on this host, and those who ask at it.

Knows nothing of Spark or of what a job is: whoever opens a control point says how requests are answered.
"""
