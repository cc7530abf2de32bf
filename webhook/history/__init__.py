"""The records in the logs of the service: read with the caller's rights or from files, merged, and summed up."""
