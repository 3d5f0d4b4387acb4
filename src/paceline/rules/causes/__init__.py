"""Causes of a run that went badly, one rule per file."""
