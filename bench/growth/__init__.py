"""How time and memory of the leader grow with the cluster: hosts, pods, gangs that run and gangs that wait."""
