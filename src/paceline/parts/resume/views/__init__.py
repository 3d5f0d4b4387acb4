"""A saved state for a reader."""
