"""What every host's agent does: starts this host's ranks, watches them, and ends them."""
