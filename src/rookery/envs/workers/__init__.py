"""Envs that step in child processes (`env.workers`); workers that also act are in `run/pools`."""
