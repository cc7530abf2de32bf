"""Why a gang waits or runs where it does, and where one would fit, on a snapshot of the cluster. Pure."""
