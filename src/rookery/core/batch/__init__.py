"""Batch: named arrays that are indexed, joined and collated together."""
