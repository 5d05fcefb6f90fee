"""Callbacks: users' code that the loop calls, and curricula."""
