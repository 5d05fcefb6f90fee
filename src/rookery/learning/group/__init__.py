"""Several learners that share every update (`learning.learners`)."""
