"""Collectives of ranks on one host through one segment of shared memory."""
