"""The state of a rank in shared memory and on disk."""
