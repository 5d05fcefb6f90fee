"""Config of any kind: YAML with line numbers, layers, overrides, and errors that say expected, got, where it was
set.
"""
