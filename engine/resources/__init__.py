"""Device resources: what pods request, its rules, and its translation into dimensions."""
