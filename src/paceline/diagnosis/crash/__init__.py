"""Ranks that ended: which one failed first, and what it left behind."""
