"""Checks that users can run on their own envs and algorithms."""
