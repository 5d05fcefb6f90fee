"""From a config to envs: one env with its wrappers, groups of them, engines, tables."""
