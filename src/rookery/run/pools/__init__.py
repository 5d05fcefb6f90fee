"""Where collectors live: in this process (`local`), in worker processes (`process`), on a Ray cluster (`ray`)."""
