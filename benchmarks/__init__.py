"""Measurements against other implementations and limits: `python -m benchmarks`."""
