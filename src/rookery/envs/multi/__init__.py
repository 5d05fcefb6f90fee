"""Envs with several agents: the table protocol, adapters of their APIs, wrappers; one agent at a table."""
