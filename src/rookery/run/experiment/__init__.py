"""Experiment: the folder of a run, resume, recovery, summary, signals, logs, and the reader of folders."""
