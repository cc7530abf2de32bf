"""The commands for a live cluster: options, one call of the room that answers or changes, and an exit status."""
