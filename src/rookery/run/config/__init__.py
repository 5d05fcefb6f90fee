"""Config of a run: its sections, how layers become one, rules between sections, older versions."""
