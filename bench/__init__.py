"""The benchmark: `python -m bench`. What it measures and how is in README.md."""
