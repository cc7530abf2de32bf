"""The placement engine: from projected cluster records to plans, placements and releases.

What belongs here: the pure core (quantities, shapes, topology, capacity, planner, gangs, explain, policy) as functions
over frozen records, the I/O with the API server (`engine.cluster`), and the leader's loop
(`engine.controller.controller`). What does not: HTTP, TLS, the command line (`webhook`) and certificates (`certs`).
"""
