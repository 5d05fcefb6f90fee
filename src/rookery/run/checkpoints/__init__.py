"""Checkpoints: written in one piece or not at all (`checkpoints`), read, verified, migrated from older formats."""
