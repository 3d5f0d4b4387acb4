"""Ranks that issue different collectives, or train on different things."""
