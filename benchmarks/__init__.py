"""Measurements against peers and limits: `python -m benchmarks`."""
