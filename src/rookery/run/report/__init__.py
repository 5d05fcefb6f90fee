"""What a run tells: meters, clock, progress, the sentinel against NaN, and the sinks that reports go to."""
