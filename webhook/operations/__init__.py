"""The commands that change a live cluster: options, one call of `maintenance`, and an exit status."""
