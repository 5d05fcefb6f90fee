"""Probes and short runs that must learn."""
