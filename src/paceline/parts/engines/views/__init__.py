"""A submitted job for a reader."""
