"""Which gangs ask the node autoscaler for new nodes, by which ProvisioningRequest, and what became of it. Pure."""
