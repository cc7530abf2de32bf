"""The support bundle: what is read of a cluster, only fields that cannot hold secrets, packed into one archive."""
