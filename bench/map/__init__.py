"""What `topogate map` costs on a large cluster: the data of one moment, and the page in Chromium."""
