"""The commands that ask a live cluster or check files: options, one call of the room that answers, an exit status."""
