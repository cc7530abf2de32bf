"""Which running gangs end, or restart elsewhere, so that a waiting gang starts: plans on the cluster without them."""
