"""The commands that ask a live cluster: connection, output, watching; the answers come from `queries`."""
