"""Learning: the learner that runs an algorithm's updates, eagerly or compiled, alone or in a group."""
