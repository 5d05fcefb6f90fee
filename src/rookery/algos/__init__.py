"""Algorithms: one file each, with its equations in the docstring; `base` is what all inherit."""
