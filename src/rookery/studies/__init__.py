"""Studies: several seeds of a preset, statistics over them, curves, gates, verification."""
