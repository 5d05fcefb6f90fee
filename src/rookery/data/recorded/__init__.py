"""Experience outside a run: a replay to use by hand, traces, files of demonstrations."""
