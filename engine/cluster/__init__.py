"""I/O with the API server: projections of its bytes, watches, the lease, and every write that we make.

What belongs here: anything that knows a URL, a verb or a resourceVersion. What does not: any decision.
"""
