"""Rules applied before a run starts, one rule per file."""
