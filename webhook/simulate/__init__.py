"""`topogate simulate`: the service's own handlers and scheduler on a cluster read from files."""
