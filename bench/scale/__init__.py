"""What a replica costs on a cluster of 10,240 nodes and 100,000 pods: start, memory, a restart of the API server."""
