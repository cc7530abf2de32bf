"""Real controllers of other workload kinds, on demand, on a local control plane.

Here belong: which ones there are and what each needs (catalogue.py), building them from their Go modules (building.py),
what of their own manifests is applied and how it is pointed to this machine (manifests.py), and starting one
(running.py). Nothing here is needed for a control plane, and nothing of it is built until somebody asks.
"""
