"""Answers about a snapshot of the cluster, computed with the planner: topologies, gangs, what fits. Pure."""
