"""How well a rule places a stream of gangs, simulated: `python -m bench.placement --help`.

Our planner beside other schedulers' placement rules, re-stated here from their documents and behaviour, on one stream,
one tree of hosts and one queue. The pieces: `mixes` and `traces` (streams of jobs), `topologies` (clusters), `rules`,
`simulator` (events), `optimum` (the exact answer for one state), `metrics`, `stats`, `report`, `plots`.

What is simulated is the choice of hosts, nothing else of these schedulers: neither quotas nor decision times.
Priorities and preemption are simulated in `preemption`, on the same streams and clusters.
"""
