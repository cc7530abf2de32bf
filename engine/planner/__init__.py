"""Places pods on a tree of hosts: arrays in, a plan or the numbers of a failure out.

Imports numpy and the standard library only. `plan` places one pod set, `plan_gang` a gang of several.
"""
