"""`rookery doctor`: where the time of a run goes, and which settings would make it faster."""
