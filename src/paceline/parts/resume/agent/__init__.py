"""What keeps and saves the state of a host's ranks, beside its agent."""
