"""What hosts have left, and for whom: eligible hosts, free capacity, gangs on them, and quota.

Numbers and rules, without watches: `engine.cache` fills these tables. Pure.
"""
