"""The current state of the cluster, kept from watches.

Informers fill stores, stores are folded into indexes and free capacity, and plans are assumed until they are seen.
"""
