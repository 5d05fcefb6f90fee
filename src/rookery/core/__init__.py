"""The ground floor, which imports no other room: batches, specs, trees, config layers, registry, errors, random
streams, processes.
"""
