"""Keeps the training state of a rank outside of it, and puts it back in a new process."""
