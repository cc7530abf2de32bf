"""The admission protocol, free of HTTP and of rules: review, response, patch, and the reads a handler may make."""
