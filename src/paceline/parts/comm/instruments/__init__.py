"""The instrument of exchanges."""
