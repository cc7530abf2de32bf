"""Workload kinds as data: a registry of entries, and the one function that reads any object by its entry."""
