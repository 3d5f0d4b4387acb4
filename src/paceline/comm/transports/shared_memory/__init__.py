"""Collectives among the ranks of one host through one segment of shared memory."""
