"""The placement algorithm: numbers in, a plan or the numbers of its failure out.

Pure: numpy and the standard library, no Kubernetes types, no clock, no I/O, nothing mutated. Domains are indices; names
come back in only where a caller turns a plan into words (`engine.explain`) or into a placement.

`plan` is the way in for equal pods, `SlotIndex` the one for numbers that change host by host, `plan_gang` the one for
several pod sets, pods that stay and minimums. Behind the first two: `amounts` (slots per domain), `slices` (whole
slices), `bounds` (candidates), `cover` (the fewest domains of one level), `descent` (down to hosts), `exact` (dynamic
programming, where the bound is missed), `search` (all of it). Behind the last: `gang` (its records), `lots` (pods that
are decided together), `ties` (what shares a domain), `place` (one lot), `fits` (necessary conditions), `joint` (lot
after lot), `mixed` (exact, for unlike pods), `assemble` (all of it).
"""

from engine.planner.gang import Gang, GangPlan, PodSet, Seats, Undecided
from engine.planner.index import SlotIndex
from engine.planner.plan import NoFit, Plan, Request, domain_slots, lowest_level, plan
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree

__all__ = [
    "Gang",
    "GangPlan",
    "NoFit",
    "Plan",
    "PodSet",
    "Request",
    "Seats",
    "Slices",
    "SlotIndex",
    "Tree",
    "Undecided",
    "build_tree",
    "domain_slots",
    "lowest_level",
    "plan",
    "plan_gang",
]
