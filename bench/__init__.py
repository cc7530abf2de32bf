"""Measurements, each a program: `python -m bench.cluster`, `python -m bench.review` (`--help` tells the options).

What they say is in docs/benchmarks.md. Nothing here is imported by the product or by its tests; results go to
bench/results, which git ignores.
"""
