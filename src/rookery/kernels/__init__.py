"""Numba kernels: recursions over time and other loops that need no gradient.

Each kernel has a plain twin (`tests/kernels/plain.py`) that states the definition as literally as possible; a test
holds them together. Nothing is imported here, so that whoever needs no kernel does not pay for importing numba.
"""
