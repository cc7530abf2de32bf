"""Priority classes and preemption on a stream of gangs, simulated: `python -m bench.placement.preemption --help`.

Streams, clusters and placement rules are those of `bench.placement`. Here jobs have a priority class, those of the
highest class may preempt others, and a victim starts again from zero. The pieces: `classes` (who has which priority),
`simulator` (events), `rules` (who has to end: the product's search, and the rules of other schedulers in own words),
`measured` (numbers of a run), `records`, `report`, `page`.
"""
