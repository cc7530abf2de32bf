"""A real Kubernetes control plane on this machine, without containers: what the demo and the cluster tests run on."""
