"""A snapshot of a suspect, taken from outside of its process."""
