"""Levels, presets, topologies built from nodes, and the levels that a request may name."""
