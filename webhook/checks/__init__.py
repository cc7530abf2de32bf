"""Checks of topologies, of an installation, and of a policy: what was found, and what it means. Pure."""
