"""The agent of every host: it starts the host's ranks, watches them, and ends them."""
