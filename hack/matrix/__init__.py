"""The core of the cluster tests on every version of Kubernetes that `local` can build, and the record of what ran.

`make test-matrix` runs it. results.json has the last run on each version; the compatibility table of the README is made
from it, and a test compares the two.
"""
