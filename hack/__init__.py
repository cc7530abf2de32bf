"""Tools of the checkout, for whoever works on the project, and not part of the wheel.

Generated files, the Helm chart, the kubectl plugin, a kind cluster.
"""
