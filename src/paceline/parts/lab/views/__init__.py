"""What was measured, for a reader."""
