"""Collecting: envs are stepped with their players, rows become chunks. Nothing is stored here: `run/players` does
that.
"""
