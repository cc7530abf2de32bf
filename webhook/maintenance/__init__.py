"""Changes that people make to a cluster by commands, each first a plan: release, suspension, removal of Topogate."""
