"""What commands have in common: their options, the connection, progress, watching, files, and printing."""
