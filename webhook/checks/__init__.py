"""Checks of a cluster's topologies and of an installation: what was found, and the remedy. Pure."""
