"""Answers about a snapshot of the cluster, computed with the planner: topologies, gangs, hosts, forecasts. Pure."""
