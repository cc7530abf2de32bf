"""Levels, presets, and topologies built from nodes; which level a request may name."""
