"""The placement algorithm: numbers in, a plan or the numbers of its failure out.

Pure: numpy and the standard library, no Kubernetes types, no clock, no I/O, nothing mutated. Domains are indices; names
come back in only where a caller turns a plan into words (`engine.explain`) or into a placement.

`plan` is the way in, `SlotIndex` the one for numbers that change host by host. Behind them: `amounts` (slots per
domain), `bounds` (candidates), `cover` (the fewest domains of one level), `descent` (down to hosts), `exact` (dynamic
programming, where the bound is missed), `search` (all of it).
"""

from engine.planner.index import SlotIndex
from engine.planner.plan import NoFit, Plan, Request, lowest_level, plan
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree

__all__ = ["NoFit", "Plan", "Request", "Slices", "SlotIndex", "Tree", "build_tree", "lowest_level", "plan"]
