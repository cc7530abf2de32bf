"""The real Helm, built once from its Go module like the programs of the control plane.

Here belongs what it takes to have it (building.py) and nothing of the chart. `python -m local.helm` builds it and
prints where it is; tests and `python -m hack.chart` ask `ensure_helm` for it.
"""
