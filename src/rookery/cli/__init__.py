"""The `rookery` command: one file per verb, each with the arguments it takes."""
