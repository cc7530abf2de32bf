"""What pods request: the nodes that accept them; device resources, their rules and their translation."""
