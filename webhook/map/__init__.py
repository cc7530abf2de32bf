"""`topogate map`: the cluster as a web page, in one file or served to its caller alone; data from `queries`."""
