"""Which running gangs end so that a waiting gang of higher priority starts: plans on the cluster without them."""
