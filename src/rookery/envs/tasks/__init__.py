"""Envs that come with Rookery: probes, games, goals, chains, Atari's screens."""
