"""Flink's settings that are not among Penstock's options, and what becomes of them.

ruling.py       a ruling: some keys, whether they are accepted without effect or refused, and why
jobs.py, state.py, metrics.py, tables.py, cluster.py    the rulings by subject
rulings.py      all rulings, and the ruling of a key

Penstock's options come first: a key with a ruling that becomes an option or an alias is effective.
"""
