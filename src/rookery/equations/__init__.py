"""The mathematics, as pure functions: `returns` (time recursions), `value`, `policy` and `distributions` (losses and probabilities).

Import from the modules. Nothing is imported here: `returns` needs numba, the others do not.
"""
