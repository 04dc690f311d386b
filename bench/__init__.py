"""The benchmark: `python -m bench`. See README.md for what it measures and how."""
