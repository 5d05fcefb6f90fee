"""`rookery check-env` and `check_env`: what is wrong with a user's env, found before training."""
