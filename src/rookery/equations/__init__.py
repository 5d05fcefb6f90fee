"""The mathematics, as pure functions:
`returns` (recursions over time), `value`, `policy`, `distributions` and `distributional`.

Import from the modules. Nothing is imported here: `returns` needs numba, the others do not.
"""
