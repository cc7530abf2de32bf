"""The placement algorithm: numbers in, a plan or the numbers of its failure out.

Pure: numpy and the standard library, no Kubernetes types, no clock, no I/O, nothing mutated. Domains are indices; names
come back in only where a caller turns a plan into words (`engine.explain`) or into a placement.
"""
