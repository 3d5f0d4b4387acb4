"""A plan for a reader."""
